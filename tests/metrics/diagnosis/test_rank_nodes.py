"""Ranks as text, and their nodes."""

from __future__ import annotations

import pytest

from fairmfu.metrics.diagnosis.rank_nodes import (
    nodes_of_ranks,
    nodes_text,
    rank_order,
    ranks_text,
)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (["3"], "3"),
        (["3", "4"], "3 and 4"),
        (["8", "9", "10", "11"], "8 to 11"),
        (["1", "3", "8", "9", "10"], "1, 3 and 8 to 10"),
        (["0:7", "1:0"], "0:7 and 1:0"),
        (["gpu-a", "gpu-b"], "gpu-a and gpu-b"),
    ],
)
def test_neighbours_are_a_range(ranks: list[str], text: str) -> None:
    assert ranks_text(ranks) == text


def test_ranks_are_in_order_of_their_numbers() -> None:
    assert sorted(["10", "9", "1:10", "1:9", "x"], key=rank_order) == [
        "1:9",
        "1:10",
        "9",
        "10",
        "x",
    ]


def numbers(count: int) -> list[str]:
    return [str(rank) for rank in range(count)]


def test_a_node_has_eight_ranks_where_the_log_shows_none() -> None:
    nodes = nodes_of_ranks(numbers(20), {})
    assert [nodes[rank] for rank in ("0", "7", "8", "15", "16")] == ["0", "0", "1", "1", "2"]
    assert nodes_of_ranks(numbers(8), {}) == {}
    assert nodes_of_ranks(["gpu-a", "gpu-b"], {}) == {}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("run/node_{node}.txt", ["0", "1", "2"]),
        ("run/host-{node}.log", ["host-0", "host-1", "host-2"]),
        ("run/gpu-{node}/rank{rank}.log", ["gpu-0", "gpu-1", "gpu-2"]),
        ("run/node{node}/rank{rank}/tracker.jsonl", ["0", "1", "2"]),
    ],
)
def test_files_and_folders_of_several_ranks_are_nodes(path: str, names: list[str]) -> None:
    paths = {str(rank): path.format(node=rank // 4, rank=rank) for rank in range(12)}
    nodes = nodes_of_ranks(numbers(12), paths)
    assert [nodes[rank] for rank in ("0", "4", "11")] == names
    assert nodes_text(["3", "4"], nodes) == ranks_text(names[:2])


@pytest.mark.parametrize("path", ["run/rank{rank}.log", "run/all.log", "run/{odd}/rank{rank}.log"])
def test_other_files_show_no_nodes(path: str) -> None:
    """A file of a rank, a file of all, and folders whose ranks are no neighbours."""
    paths = {str(rank): path.format(rank=rank, odd=rank % 2) for rank in range(16)}
    nodes = nodes_of_ranks(numbers(16), paths)
    assert [nodes["7"], nodes["8"]] == ["0", "1"]
    assert nodes_text([], nodes) is None
