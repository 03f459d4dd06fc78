"""The command line; each installed part brings its own subcommands."""
