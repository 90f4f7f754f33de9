"""`holdfast service ls|show|watch|call|doctor|rm`: the services of this machine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from holdfast import Denied, HoldfastError, Misuse, NotFound, _core
from holdfast.cli import parsing, segments
from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, command
from holdfast.formatting import plural, size_words, text_table
from holdfast.memory.service import (
    FIELD,
    METHOD,
    Element,
    Proxy,
    Service,
    ServiceStats,
    Value,
    changes,
    faults_of_service,
    service_stats_of,
)

DOCTOR = """\
Checks every sample, log and call of an instance, even if all its processes are
dead or its bytes are damaged. This changes nothing. The exit status is 0 if it
is sound, 1 if there is a fault. A dead process is not a fault: the next process
that needs its samples clears it."""

CALL = """\
Calls a method, or sets a field if a value is given, or gets a field without
one. VALUE is JSON: a number, a list, or text for bytes. The exit status is 1 if
the provider refuses the call or is not there."""

RM = """\
Deletes the memory of instances that no living process offers or uses."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("service", help="list, inspect, watch, call and check services")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    command(verbs, "ls", "list the instances of this machine", "Lists the instances, one per line.", ls)
    parser = command(verbs, "show", "show elements, users and counters", "Shows one instance.", show)
    parser.add_argument("name", metavar="SERVICE.INSTANCE", type=parsing.queue)
    parser = command(
        verbs,
        "watch",
        "print each instance that comes and goes",
        "Prints the offered instances, then each change, until Ctrl-C.",
        watch,
    )
    parser.add_argument("service", metavar="SERVICE", nargs="?", help="only instances of this service")
    parser.add_argument(
        "--for", dest="seconds", type=parsing.interval, metavar="S", help="end after S seconds"
    )
    parser = command(verbs, "call", "call a method, get or set a field", CALL, call)
    parser.add_argument("name", metavar="SERVICE.INSTANCE", type=parsing.queue)
    parser.add_argument("element", metavar="ELEMENT", help="method or field")
    parser.add_argument("value", metavar="VALUE", nargs="?", help="JSON")
    parser.add_argument(
        "--timeout", type=parsing.interval, metavar="S", default=5.0, help="seconds to wait (default 5)"
    )
    parser = command(verbs, "doctor", "check an instance", DOCTOR, doctor)
    parser.add_argument("name", metavar="SERVICE.INSTANCE", type=parsing.queue)
    parser = command(verbs, "rm", "delete unused instances", RM, rm)
    parser.add_argument("names", metavar="SERVICE.INSTANCE", nargs="+", type=parsing.queue)


def look(directory: str | None, name: str) -> dict[str, Any]:
    """Inspect an instance.

    Raises:
        NotFound: there is no such instance; the text names a similar one.
    """
    try:
        return _core.inspect_service(segments.where(directory), name)
    except NotFound:
        raise segments.not_found("service", directory, name) from None


def ls(options: argparse.Namespace) -> int:
    where = segments.where(options.directory)
    answers: list[dict[str, Any]] = []
    for name, offered, pid in _core.list_services(where):
        answer: dict[str, Any] = {"name": name, "offered": offered, "provider": pid or None}
        try:
            seen = look(options.directory, name)
            faults = faults_of_service(seen)
            answer["state"] = faults[0] if faults else "sound"
            if "elements" in seen:
                found = service_stats_of(name, seen)
                answer["elements"] = [each.name for each in found.elements]
                answer["users"] = sum(each.alive and each.role != "provider" for each in found.users)
                answer["size_bytes"] = seen["size"]
        except NotFound:
            continue
        except Denied as error:
            answer["state"] = str(error)
        answers.append(answer)
    if options.json:
        print_json({"services": answers})
        return 0
    head = ("NAME", "PROVIDER", "USERS", "SIZE", "ELEMENTS", "STATE")
    rows = [
        (
            each["name"],
            str(each["provider"]) if each["offered"] else "-",
            str(each.get("users", "-")),
            size_words(each["size_bytes"]) if "size_bytes" in each else "-",
            ", ".join(each.get("elements", [])) or "-",
            each["state"],
        )
        for each in answers
    ]
    print("\n".join(text_table(head, rows)) if rows else segments.nothing("services", options.directory))
    return 0


def show(options: argparse.Namespace) -> int:
    found = service_stats_of(options.name, look(options.directory, options.name))
    if options.json:
        print_json(asdict(found))
    else:
        print("\n".join(lines_of(found)))
    return 0


def lines_of(found: ServiceStats) -> list[str]:
    """Describe an instance."""
    offers = plural(found.epoch, "offer")
    lines = [f"service {found.name}: {'offered' if found.offered else 'not offered'}, {offers} so far"]
    for each in found.elements:
        parts = []
        if each.samples:
            parts.append(
                f"{plural(each.samples, 'sample')} of {size_words(each.size_bytes)}, {each.free} free, "
                f"{each.held} held; newest {each.published}; {plural(each.subscribers, 'subscriber')} of "
                f"{each.max_subscribers}, which may hold {each.granted}"
            )
        if each.calls:
            parts.append(f"{each.calls_under_way} of {plural(each.calls, 'call')} under way")
        lines.append(f"  {each.kind} {each.name}: {'; '.join(parts)}")
    for user in found.users:
        name = f" ({segments.process_name(user.pid)})" if user.alive else ", which is dead"
        lines.append(f"  {user.role}: pid {user.pid}{name}, {user.application}")
    for key in ("sent", "taken", "missed", "called", "answered", "recovered", "corrupt", "unheard"):
        lines.append(f"  {key}: {getattr(found, key)}")
    return lines


def watch(options: argparse.Namespace) -> int:
    for name, offered in changes(segments.where(options.directory), options.service, options.seconds):
        if options.json:
            print(json.dumps({"name": name, "offered": offered}), flush=True)
        else:
            print(f"{name}: {'offered' if offered else 'gone'}", flush=True)
    return 0


def call(options: argparse.Namespace) -> int:
    service = Service.of(options.name, directory=options.directory)
    _, _, instance = options.name.partition(".")
    with service.find(instance, options.timeout, directory=options.directory) as proxy:
        element = proxy.elements.get(options.element)
        if element is None or element.kind not in (FIELD, METHOD):
            known = ", ".join(name for name, each in proxy.elements.items() if each.kind in (FIELD, METHOD))
            raise NotFound(
                f"service {options.name} has no method or field {options.element}; it has {known or 'none'}"
            )
        result = _result(proxy, element, options)
    shown = _shown(result)
    if options.json:
        print_json({"result": shown})
    elif shown is not None:
        print(json.dumps(shown))
    return 0


def _result(proxy: Proxy, element: Element, options: argparse.Namespace) -> Any:
    end = getattr(proxy, options.element)
    value = None if options.value is None else _value(options.value, element.request)
    if element.kind == METHOD:
        return end(value, timeout=options.timeout)
    return end.get(options.timeout) if value is None else end.set(value, options.timeout)


def _value(text: str, kind: Value) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Misuse(f"VALUE {text!r} is not JSON: {error}; write text as '\"text\"'") from None
    if kind.layout is None:
        return value.encode() if isinstance(value, str) else value
    return value


def _shown(result: Any) -> Any:
    if isinstance(result, bytes):
        return result.decode(errors="backslashreplace")
    return result.tolist() if hasattr(result, "tolist") else result


def report_on(name: str, seen: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on one instance, as JSON has it."""
    faults = faults_of_service(seen)
    dead = [each["pid"] for each in seen.get("people", []) if each["active"] and not each["alive"]]
    return {"name": name, "sound": not faults, "faults": faults, "dead": dead}


def reports(directory: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the verdicts on all instances, and the names of unreadable ones."""
    found, denied = [], []
    for name, _, _ in _core.list_services(segments.where(directory)):
        try:
            found.append(report_on(name, look(directory, name)))
        except NotFound:
            continue
        except Denied:
            denied.append(name)
    return found, denied


def doctor(options: argparse.Namespace) -> int:
    seen = look(options.directory, options.name)
    report = report_on(options.name, seen)
    if options.json:
        print_json(report)
        return 0 if report["sound"] else 1
    if "elements" in seen:
        print("\n".join(lines_of(service_stats_of(options.name, seen))))
    for pid in report["dead"]:
        print(f"  pid {pid} died; the next process that needs its samples clears it")
    for fault in report["faults"]:
        print(f"  fault: {fault}")
    print("sound" if report["sound"] else "damaged: end all its processes, then offer it again")
    return 0 if report["sound"] else 1


def rm(options: argparse.Namespace) -> int:
    removed, kept = list[str](), list[str]()
    for name in options.names:
        look(options.directory, name)
        (removed if _core.remove_service(segments.where(options.directory), name) else kept).append(name)
    if options.json:
        print_json({"removed": removed, "in_use": kept})
    else:
        for name in removed:
            print(f"removed {name}")
    if kept:
        raise HoldfastError(f"in use by living processes: {', '.join(kept)}; end them first")
    return 0
