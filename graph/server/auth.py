"""Who may talk to the LangGraph server: programs of this machine and Studio's page, but no other page that a browser has open.

A server of `langgraph dev` answers every page, and a run lets its caller name a model's address and the sandbox: without this, any
page could have kernels of its own run here.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from langgraph_sdk import Auth

MORE = "TRITONSMITH_ORIGINS"
"""Environment variable with further pages that may ask, separated by commas."""
_STUDIO = ("https://smith.langchain.com", "https://eu.smith.langchain.com")
"""Studio's pages."""
_HERE = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""

auth = Auth()


@auth.authenticate
async def enter(headers: Mapping[bytes, bytes]) -> str:
    """Let a request in that comes from no page at all, from one of this machine, or from Studio; its name is the same for all."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    more = [page.strip() for page in os.environ.get(MORE, "").split(",")]
    if origin and origin not in (*_STUDIO, *more) and urlsplit(origin).hostname not in _HERE:
        detail = f"the page {origin} may not ask this server; set {MORE}={origin} if it shall, and start the server again"
        raise Auth.exceptions.HTTPException(status_code=403, detail=detail)
    return "local"
