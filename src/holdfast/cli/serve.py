"""`holdfast serve`: the broker on the network."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from holdfast.cli.parsing import Subparsers, Usage
from holdfast.errors import BadConfiguration

DESCRIPTION = """\
Serves a data directory to Pulsar clients, and its administration over HTTP. By
default it listens to this machine alone, without authentication.

Settings come from a TOML file, from variables ($HOLDFAST_LISTEN_PORT for the
key listen.port), and from flags; a flag wins over a variable over the file.
--print-config shows the result, with the origin of each value. It also reads
the certificates, keys and users that the settings name, and says what is wrong
with them. It opens no port and changes nothing.

When it is ready it prints one line on the standard output. SIGTERM and SIGINT
stop it in order: accepted messages are confirmed, clients are notified. A
second signal stops it at once. SIGHUP reloads certificates, keys, users and
grants.

The exit status is 0 after an orderly stop; 1 if it could not start or continue
(the directory is held by another process, a port is taken, the disk fails); 2
if the arguments or the configuration are wrong."""

FLAGS = {
    "data": ("data", "DIR", "data directory; created if missing"),
    "host": ("listen.host", "ADDRESS", "address to listen on (default 127.0.0.1)"),
    "port": ("listen.port", "PORT", "port of the Pulsar protocol (default 6650); 0: any free port; off"),
    "tls-port": ("listen.tls_port", "PORT", "the same with TLS (default off)"),
    "http-port": ("listen.http_port", "PORT", "administration and metrics (default 8080)"),
    "https-port": ("listen.https_port", "PORT", "the same with TLS (default off)"),
    "log-level": ("log.level", "LEVEL", "debug, info, warning or error"),
    "log-format": ("log.format", "FORMAT", "text or json"),
}


def add(nouns: Subparsers) -> None:
    parser = nouns.add_parser(
        "serve",
        help="serve a data directory to Pulsar clients",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, (_, metavar, words) in FLAGS.items():
        parser.add_argument(f"--{flag}", metavar=metavar, dest=f"flag_{flag}", help=words)
    parser.add_argument(
        "--tap",
        action="append",
        default=[],
        metavar="SERVICE.INSTANCE/EVENT=TOPIC",
        help="store the samples of a service's event or field in a topic; replaces the taps of the file",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting")
    parser.add_argument("--config", metavar="FILE", help="settings, TOML (default $HOLDFAST_CONFIG)")
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings, check the files they name, and exit"
    )
    parser.add_argument("--json", action="store_true", help="print the ready message as JSON")
    parser.set_defaults(run=serve, parser=parser)


def serve(options: argparse.Namespace) -> int:
    try:
        # Brings the broker and the server, for which no other command should wait.
        from holdfast.server import settings
    except ModuleNotFoundError as error:
        raise Usage(f"the server needs {error.name}: pip install 'holdfast[server]'") from None

    file = options.config if options.config is not None else os.environ.get(settings.FILE_VARIABLE)
    flags = given_flags(options)

    def read() -> settings.Settings:
        return settings.load(Path(file) if file else None, os.environ, flags)

    try:
        found = read()
        if options.print_config:
            print(settings.as_toml(found), end="", flush=True)
            from holdfast.server.running import require_files

            require_files(found.config)
            return 0
        if found.config.data is None:
            raise Usage("no data directory given; use --data DIR, or set $HOLDFAST_DATA")
        from holdfast.server.running import run

        return run(found, read, json_ready=options.json)
    except BadConfiguration as error:
        raise Usage(str(error)) from None
    except ModuleNotFoundError as error:
        raise Usage(f"the server needs {error.name}: pip install 'holdfast[server]'") from None


def given_flags(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(Name of the flag, key, text), the more exact ones last."""
    found = []
    for each in options.set:
        key, equals, text = each.partition("=")
        if not equals:
            raise Usage(f"--set {each}: write KEY=VALUE, such as limits.connections=100")
        found.append(("--set", key.strip(), text))
    if options.tap:
        found.append(("--tap", "taps", ",".join(options.tap)))
    for flag, (key, _, _) in FLAGS.items():
        text = getattr(options, f"flag_{flag}")
        if text is not None:
            found.append((f"--{flag}", key, text))
    return found
