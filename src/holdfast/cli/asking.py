"""Commands that ask a running server over HTTP."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.cli.data import SERVER_VARIABLE
from holdfast.cli.parsing import Subparsers, Usage, bare_command, declare
from holdfast.cli.top import DEFAULT_SERVER

if TYPE_CHECKING:
    from holdfast.cli.remote_http import Http


def asking_command(
    verbs: Subparsers, name: str, summary: str, words: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command with the option --server."""
    parser, shared = bare_command(verbs, name, summary, words, run)
    declare(shared)(f"""
        --server URL: a server, http://host:port (default ${SERVER_VARIABLE}, else {DEFAULT_SERVER}); its
            token is taken from $HOLDFAST_TOKEN
        """)
    return parser


def server_of(options: argparse.Namespace) -> Http:
    """Return the server that the options or the environment name."""
    try:
        from holdfast.cli.remote_http import Http
    except ModuleNotFoundError as error:
        raise Usage(f"a server needs {error.name}: pip install 'holdfast[server]'") from None
    return Http(options.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER)
