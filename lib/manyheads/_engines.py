"""The engines of a sweep: each takes jobs and yields their outcomes as they come.

A job is (index, cell, path); the outcome (index, result, None), or (index, None, (error in
a line, traceback)). With a path the result is stored there before it is handed on.
"""

__all__ = ["ENGINES"]

import contextlib
import logging
import re
import sys
import traceback
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool

from joblib import Parallel, cpu_count, delayed

from manyheads._checks import refuse
from manyheads._store import read, write

_TRIES = 3  # of a cell alone, after its process was killed
_ADDRESS = r"(\w+://)?[^\s/]+:\d+"


def attempt(function, index: int, cell: dict, path):
    """The outcome of one job."""
    try:
        result = None if path is None else read(path)  # another sweep may have been here
        if result is None:
            result = function(**cell)
            if not isinstance(result, dict) or set(result) & set(cell):
                refuse("function", "one that returns a dict of names that are no parameters",
                       result)
            if path is not None:
                # The caller stores what is not there, and says so if it cannot either.
                with contextlib.suppress(OSError):
                    write(result, path)
        return index, result, None
    except (Exception, SystemExit) as error:
        # As text: not every exception survives the way back from another process.
        return index, None, (f"{type(error).__name__}: {error}", traceback.format_exc())


def serial(function, jobs, address):
    """In this process."""
    for job in jobs:
        yield attempt(function, *job)


def processes(function, jobs, address):
    """In as many processes as there are CPUs."""
    left = {job[0]: job for job in jobs}
    workers = min(cpu_count(), len(left))
    while left:
        try:
            for outcome in _parallel(workers, function, left.values()):
                del left[outcome[0]]
                yield outcome
        except BrokenProcessPool:
            # One process was killed and all ended. They had the first of the cells that are
            # left; each gets processes of its own, and shows whether it kills them.
            for index in list(left)[:workers]:
                yield _alone(function, left.pop(index))


def _parallel(workers: int, function, jobs):
    # Two or more, or joblib would stay in this process.
    parallel = Parallel(max(workers, 2), batch_size=1, return_as="generator_unordered")
    return parallel([delayed(attempt)(function, *job) for job in jobs])


def _alone(function, job):
    for _ in range(_TRIES):
        try:
            return next(_parallel(1, function, [job]))
        except BrokenProcessPool as error:
            killed = str(error)
    return job[0], None, (f"its process was killed {_TRIES + 1} times", killed)


def dask(function, jobs, address):
    """By the Dask scheduler at the address, or on a local cluster that lives for this sweep."""
    try:
        import cloudpickle
        from distributed import Client, KilledWorker, LocalCluster, as_completed
    except ImportError as error:
        raise ImportError('engine="dask" needs the package distributed: '
                          'pip install "manyheads[sweep]"') from error
    if address is not None and not re.fullmatch(_ADDRESS, address):
        refuse("address", "that of a Dask scheduler, such as tcp://host:8786", repr(address))
    # By value when it is from a script or a notebook, which no worker can import.
    function = cloudpickle.dumps(function)
    with contextlib.ExitStack() as stack:
        if address is None:
            stack.enter_context(_script_runs_once())
            address = stack.enter_context(LocalCluster(
                n_workers=min(cpu_count(), len(jobs)), threads_per_worker=1, memory_limit=None,
                host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
                scheduler_kwargs={"allowed_failures": 1}))
        try:
            client = stack.enter_context(Client(address, set_as_default=False))
        except (OSError, ValueError) as error:
            refuse("address", "that of a running Dask scheduler", f"{address!r}: {error}")

        def submit(some):
            # Impure: what the scheduler has from another sweep may be of other code.
            futures = client.map(_attempt_pickled, [cloudpickle.dumps(job) for job in some],
                                 function=function, pure=False)
            by_key.update({future.key: job for future, job in zip(futures, some)})
            return as_completed(futures, loop=client.loop)  # lets go of each as it comes

        by_key, suspects = {}, []
        for future in submit(jobs):
            outcome = _outcome(future, by_key[future.key])
            if future.status == "error" and isinstance(future.exception(), KilledWorker):
                suspects.append(by_key[future.key])
            else:
                yield outcome
        # Their workers were killed, perhaps by another cell that had the same one.
        for job in suspects:
            yield _outcome(next(submit([job])), job)


def _outcome(future, job):
    try:
        return future.result()  # of one that was lost with its worker: when it ran again
    except CancelledError as error:
        raise ConnectionError("the Dask scheduler went away") from error
    except Exception as error:
        # Not the cell's own, which is in its outcome: its workers were killed.
        return job[0], None, (f"{type(error).__name__}: {error}", "")


def _attempt_pickled(job: bytes, function: bytes):
    import cloudpickle

    return attempt(cloudpickle.loads(function), *cloudpickle.loads(job))


@contextlib.contextmanager
def _script_runs_once():
    """While this lasts, new processes do not run the script again that this one runs.

    They would do it to find its functions, which we send by value; and a script without
    `if __name__ == "__main__"` would start its sweep in each of them.
    """
    main = sys.modules["__main__"]
    hidden = {name: vars(main).pop(name) for name in ("__file__", "__spec__")
              if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)


ENGINES = {"serial": serial, "processes": processes, "dask": dask}
