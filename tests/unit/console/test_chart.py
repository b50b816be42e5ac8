"""The map of data sets and tasks: what is around a node, and how it is laid out."""

from __future__ import annotations

from itertools import combinations, pairwise

from app.console.drawing import chart
from triggers.looking.atlas import Arrow, Node, columns, drawn


def task(name: str) -> Node:
    return Node("task", name)


def data(name: str) -> Node:
    return Node("data", name)


SRC, DDS, MART, OUT = data("src"), data("dds"), data("mart"), data("out")
LOAD, BUILD, SEND, OTHER = task("load"), task("build"), task("send"), task("other")
CHAIN: list[Arrow] = [(SRC, LOAD), (LOAD, DDS), (DDS, BUILD), (BUILD, MART), (MART, SEND), (SEND, OUT), (DDS, OTHER)]


def test_what_is_around_a_node_is_found_by_steps_along_arrows() -> None:
    atlas = drawn(CHAIN)
    assert set(atlas.around(BUILD, 1, 50)) == {BUILD, DDS, MART}
    # Not what only shares its input with it.
    assert set(atlas.around(BUILD, 2, 50)) == {BUILD, DDS, MART, LOAD, SEND}
    assert atlas.around(BUILD, 3, 3) == [BUILD, DDS, MART]
    assert atlas.around(BUILD, 3, 1) == [BUILD]


def test_names_are_found_by_a_part_of_them() -> None:
    atlas = drawn(CHAIN)
    assert atlas.find("O", 10) == [OUT, LOAD, OTHER]
    assert atlas.find("load", 1) == [LOAD]
    assert atlas.find("none", 10) == []


def test_arrows_lead_to_the_right() -> None:
    atlas = drawn([*CHAIN, (SRC, BUILD)])
    found = columns(list(atlas.nodes), atlas.between(atlas.nodes))
    for start, ends in atlas.forth.items():
        assert all(found[start] < found[end] for end in ends)


def test_what_nothing_leads_to_stands_beside_what_needs_it() -> None:
    late = data("late")
    atlas = drawn([*CHAIN, (late, SEND)])
    found = columns(list(atlas.nodes), atlas.between(atlas.nodes))
    assert found[late] == found[SEND] - 1


def test_a_circle_has_one_arrow_back() -> None:
    atlas = drawn([(SRC, LOAD), (LOAD, DDS), (DDS, BUILD), (BUILD, SRC), (LOAD, SRC)])
    picture = chart.draw(list(atlas.nodes), atlas.between(atlas.nodes))
    back = [line.says for line in picture.lines if line.back]
    assert back == ["load to src", "build to src"]
    assert len(picture.boxes) == 4


def test_no_box_lies_on_another_one() -> None:
    wide: list[Arrow] = [(data(f"in{number}"), BUILD) for number in range(12)]
    atlas = drawn([*CHAIN, *wide, (SRC, SEND)])
    picture = chart.draw(list(atlas.nodes), atlas.between(atlas.nodes))
    for one, other in combinations(picture.boxes, 2):
        assert abs(one.x - other.x) >= picture.box_width or abs(one.y - other.y) >= picture.box_height
    for box in picture.boxes:
        assert 0 <= box.x <= picture.width - picture.box_width
        assert 0 <= box.y <= picture.height - picture.box_height


def test_a_long_chain_needs_no_recursion() -> None:
    nodes = [data(f"n{number:05}") for number in range(5000)]
    found = columns(nodes, list(pairwise(nodes)))
    assert [found[node] for node in nodes] == list(range(5000))
