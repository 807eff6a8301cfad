"""Who may talk to the LangGraph server: programs of this machine and Studio's page, but no other page of a browser.

A server of `langgraph dev` answers every page, and the caller of a run names the model's address and the sandbox. Without this check any
page could run its own kernels here.
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
    """Accept a request from no page, from a page of this machine, or from Studio. All callers get the same name."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    more = [page.strip() for page in os.environ.get(MORE, "").split(",")]
    if origin and origin not in (*_STUDIO, *more) and urlsplit(origin).hostname not in _HERE:
        detail = f"the page {origin} may not ask this server; set {MORE}={origin} if it shall, and start the server again"
        raise Auth.exceptions.HTTPException(status_code=403, detail=detail)
    return "local"
