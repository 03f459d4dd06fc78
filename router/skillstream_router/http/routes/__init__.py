"""The gateway's endpoints: each module of this folder has a `router`, which `make_app` includes."""
