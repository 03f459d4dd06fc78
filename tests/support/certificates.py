"""Self-made certificates for servers in tests, by the openssl command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")


@dataclass(frozen=True)
class Certificate:
    """A certificate that is its own authority: whoever trusts the file `chain` trusts the server that has `key`."""

    chain: Path
    key: Path

    @classmethod
    def make(cls, folder: Path, name: str, *, names: str) -> Certificate:
        """Makes one for `names`, in the form of a subjectAltName: `DNS:localhost,IP:127.0.0.1`."""
        assert OPENSSL is not None
        made = cls(folder / f"{name}.pem", folder / f"{name}.key")
        subprocess.run(
            [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-keyout", str(made.key), "-out", str(made.chain)],
            check=True, capture_output=True, timeout=30,
        )  # fmt: skip
        return made

    def server_context(self) -> ssl.SSLContext:
        """What a server with this certificate needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context
