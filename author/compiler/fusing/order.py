"""In which order regions run."""

from __future__ import annotations

from collections.abc import Iterable

from tritonsmith.author.compiler.fusing.regions import WorkRegion


def depends(region: WorkRegion | None, on: WorkRegion, homes: dict[int, WorkRegion]) -> bool:
    """Whether a region needs, however far up, what another one stores; `homes`: by value the region that stores it."""
    seen: set[int] = set()
    todo = [region]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        if one is on:
            return True
        seen.add(id(one))
        todo += [homes.get(key) for key in one.reads]
    return False


def order_regions(regions: Iterable[WorkRegion], homes: dict[int, WorkRegion]) -> list[WorkRegion]:
    """The regions, each behind what it reads; `homes`: by value the region that stores it."""
    done: list[WorkRegion] = []
    waiting = list(regions)
    while waiting:
        ready = next(one for one in waiting if all(homes.get(key) in (None, one) or homes[key] in done for key in one.reads))
        waiting.remove(ready)
        done.append(ready)
    return done
