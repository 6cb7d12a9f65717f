"""A sweep on two Dask workers against the same sweep on one.

`measure()` returns rows for `make bench`: the throughput of equal cells that compute,
the clusters taken in turns and started beforehand.
"""

import statistics
import time

from manyheads import sweep

CELLS, ROUNDS = 24, 3


def work(number):
    """A quarter of a second, or so, of plain Python."""
    total = 0
    for k in range(3_000_000):
        total += k & number
    return {"total": total}


def measure() -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    from distributed import LocalCluster

    def cluster(workers):
        return LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1",
                            dashboard_address="127.0.0.1:0")

    grid = sweep.product(number=range(CELLS))
    with cluster(1) as one, cluster(2) as two:
        ratios = [seconds(grid, one) / seconds(grid, two) for _ in range(ROUNDS)]
    return [{"name": f"sweep of {CELLS} equal cells: two Dask workers / one (throughput)",
             "ratio": statistics.median(ratios), "bound": 1.6, "direction": "at least"}]


def seconds(grid, cluster) -> float:
    start = time.perf_counter()
    sweep.run(work, grid, engine="dask", address=cluster.scheduler_address, progress=False)
    return time.perf_counter() - start
