"""Share work among processes and gather the results. One worker dies; no result is missing.

python examples/work_queue.py
"""

import json
import multiprocessing
import os
import signal

from holdfast import Queue

TASKS = 200
WORKERS = 3


def work(tasks_name: str, results_name: str, dies_at: int | None) -> None:
    """Count the divisors of each number until the queue of tasks is closed."""
    with Queue.open(tasks_name) as tasks, Queue.open(results_name) as results:
        for message in tasks:  # the next step settles the task
            number = int(bytes(message.data))
            if number == dies_at and not message.redelivered:
                os.kill(os.getpid(), signal.SIGKILL)  # as the kernel would, out of memory
            divisors = sum(number % i == 0 for i in range(1, number + 1))
            results.put(json.dumps([number, divisors, message.redelivered]).encode())


def main() -> None:
    names = f"tasks.{os.getpid()}", f"results.{os.getpid()}"
    start = multiprocessing.get_context("spawn").Process
    with (
        Queue.create(names[0], capacity=1 << 20) as tasks,
        Queue.create(names[1], capacity=1 << 20) as results,
    ):
        workers = [start(target=work, args=(*names, 150)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        tasks.put_many([str(number).encode() for number in range(1, TASKS + 1)])
        tasks.close()  # a worker that finds the queue empty from now on ends
        answers: dict[int, int] = {}
        while len(answers) < TASKS:
            number, divisors, redelivered = json.loads(results.get_bytes(timeout=30.0))
            if number in answers:
                continue  # a worker died after its result and before it settled the task
            answers[number] = divisors
            if redelivered:
                print(f"task {number} was delivered again: its first worker died")
        for worker in workers:
            worker.join()
        died = sum(worker.exitcode != 0 for worker in workers)
    for name in names:
        Queue.unlink(name)
    print(f"{len(answers)} of {TASKS} results from {WORKERS} workers, of which {died} died")
    print(f"the number with most divisors is {max(answers, key=answers.__getitem__)}")


if __name__ == "__main__":
    main()
