"""How often 95 % intervals of simulated runs cover the truth: the table of docs/statistics.md.

make coverage
"""

from __future__ import annotations

from tests.support.simulated import Simulation

RUNS = 4000
WINDOWS = (10, 13, 21, 41, 101, 201, 401)
"""The first of which is start-up."""
CASES = {
    "noise": {},
    "5 % of windows stall": {"stalls": 0.05},
}


def cell(windows: int, autocorrelation: float, **eventful: float) -> str:
    """Share of intervals that hold the true rate, and of runs that have none."""
    law = Simulation(windows=windows, autocorrelation=autocorrelation, **eventful)  # type: ignore[arg-type]
    told = [found.estimate for found in law.estimates(RUNS, seed=1)]
    given = [one for one in told if one is not None]
    covered = sum(one.low <= law.tgs <= one.high for one in given) / len(given)
    without = 1 - len(given) / RUNS
    return f"{covered:.1%}" + (f" ({without:.0%} without)" if without > 0.005 else "")


def main() -> None:
    """Print the table."""
    levels = (0.0, 0.3, 0.6)
    heads = [f"autocorrelation {level}" for level in levels]
    print("| runs with | steady windows | " + " | ".join(heads) + " |")
    print("| --- " * (2 + len(heads)) + "|")
    for name, eventful in CASES.items():
        for windows in WINDOWS:
            if eventful and windows <= 2 / eventful["stalls"]:
                continue  # hardly a stall is seen
            cells = [cell(windows, level, **eventful) for level in levels]
            print(f"| {name} | {windows - 1} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
