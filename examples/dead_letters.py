"""Move a message that kills its consumer to a dead-letter queue, after three deliveries.

python examples/dead_letters.py
"""

import os
import signal

from holdfast import Closed, Queue


def consume(name: str) -> None:
    """Consume with a bug: one message kills the process."""
    queue = Queue.open(name)
    while True:
        try:
            with queue.get(timeout=10.0) as message:
                if bytes(message.data) == b"poison":
                    os.kill(os.getpid(), signal.SIGKILL)
        except Closed:
            return


def run_consumer(name: str) -> int:
    """Run a consumer in a process of its own; return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            consume(name)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    name = f"jobs.{os.getpid()}"
    letters = f"{name}.dead"
    queue = Queue.create(name, capacity=1 << 16, max_deliveries=3, dead_letter=letters)
    queue.put_many([b"good", b"poison", b"also good"])
    queue.close()
    deaths = 0
    while (status := run_consumer(name)) != 0:
        deaths += 1
        print(f"consumer {deaths} died of signal {-status}")
    print(f"the next one finished; settled: {queue.stats().settled}")
    queue.detach()
    with Queue.open(letters) as dead, dead.get(timeout=0) as message:
        print(f"in the dead-letter queue: {bytes(message.data).decode()}, after {deaths} deaths")
    Queue.unlink(name)
    Queue.unlink(letters)


if __name__ == "__main__":
    main()
