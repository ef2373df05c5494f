"""Workers for a grid's jobs: processes of this machine, or a Ray cluster.

1. Rows come as they are finished, in any order; a job is given to one process at a time.
2. A process that dies takes the jobs with it that it and its siblings had in hand (the pool cannot say whose
   fault it was). Each of these gets one more attempt, alone in a process of its own, and is a failure when
   that dies too. All others go on in a new pool.
3. Workers do not outlive this process: they end when it is killed, and are ended when it is interrupted.
   Ctrl-C is for this process alone.
4. Processes start with the environment this one had when it began to plan: what a target has set since (MONAI
   sets cuBLAS's variable when it is imported) is for its own job. They have the sandbox's variables besides.

Not modelled: jobs that want more memory than this machine has, jobs that never end.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from analyzer import protection

_ENVIRONMENT = dict(os.environ)
Job = TypeVar("Job")
Row = TypeVar("Row")


def on_cores(
    jobs: Sequence[Job],
    task: Callable[[Job], Row],
    failed: Callable[[Job], Row],
    workers: int,
    jobs_a_process: int | None = None,
) -> Iterator[Row]:
    """Yield `task` of every job, by `workers` processes; `failed` of one whose process died twice.

    jobs_a_process: after so many a process is replaced by a fresh one; None: never.
    """
    waiting = deque(jobs)
    while waiting:
        for job in (yield from _in_a_pool(waiting, task, _pool(workers, jobs_a_process), workers)):
            yield _alone(job, task, failed)


def _in_a_pool(
    waiting: deque[Job],
    task: Callable[[Job], Row],
    opened: AbstractContextManager[ProcessPoolExecutor],
    workers: int,
) -> Generator[Row, None, list[Job]]:
    """Yield rows of jobs from `waiting` until a process dies; return the unfinished jobs."""
    running: dict[Future[Row], Job] = {}
    in_hand: list[Job] = []
    with opened as pool:
        while (waiting and not in_hand) or running:
            while waiting and not in_hand and len(running) < 2 * workers:
                try:
                    future = pool.submit(task, waiting[0])
                except BrokenProcessPool:
                    # It broke between two rows: if nothing was in hand, this job is tried alone.
                    if not running:
                        in_hand.append(waiting.popleft())
                    break
                running[future] = waiting.popleft()
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                job = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    in_hand.append(job)
                else:
                    yield future.result()
    return in_hand


def _alone(job: Job, task: Callable[[Job], Row], failed: Callable[[Job], Row]) -> Row:
    """Run one job in a process of its own."""
    with _pool(1) as pool:
        try:
            return pool.submit(task, job).result()
        except BrokenProcessPool:
            return failed(job)


@contextmanager
def _pool(workers: int, jobs_a_process: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """Return a pool of fresh processes (torch's threads do not survive a fork), not awaited on exit."""
    others = set(active_children())
    pool = ProcessPoolExecutor(
        workers,
        get_context("spawn"),
        _begin,
        ({**_ENVIRONMENT, **protection.inherited()},),
        max_tasks_per_child=jobs_a_process,
    )
    try:
        yield pool
    except BaseException:
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _begin(environment: Mapping[str, str]) -> None:
    """Initialise a worker process."""
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def on_ray(
    jobs: Sequence[Job], task: Callable[[Job], Row], failed: Callable[[Job], Row], address: str
) -> Iterator[Row]:
    """Yield the rows, by the Ray cluster at `address`. Raises MissingDependencyError, OptionError."""
    from analyzer.errors import MissingDependencyError, OptionError, install

    try:
        import ray
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "a grid on a Ray cluster needs ray, which is not installed", install("ray")
        ) from None
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise OptionError(
                f"no Ray cluster answers at {address}: {' '.join(str(error).split())[:200]}",
                'give its address ("HOST:6379", "ray://HOST:10001"), or "auto" on a machine of the cluster',
            ) from None
    try:
        remote = ray.remote(num_cpus=1, max_retries=1)(task)
        pending = {remote.remote(job): job for job in jobs}
        while pending:
            finished, _ = ray.wait(list(pending), num_returns=1)
            for reference in finished:
                job = pending.pop(reference)
                try:
                    row = ray.get(reference)
                except ray.exceptions.RayError:
                    row = failed(job)
                yield row
    finally:
        if started:
            ray.shutdown()
