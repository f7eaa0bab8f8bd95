"""Columns and a curve of characters."""

from __future__ import annotations

from sapwood.cli.plan_table import HEIGHT, WIDTH, Table, TableRow, lines, plot


def test_columns_stand_under_each_other_and_empty_ones_are_left_out() -> None:
    table = Table.of(["", "n", "none"], [TableRow(("a", "1", "")), TableRow(("long", "20", ""), here=True)])
    assert list(lines(table)) == ["         n", "  a      1", "  long  20"]
    assert [row.here for row in table.rows] == [False, True]


def test_a_curve_goes_from_its_first_point_to_its_last() -> None:
    *rows, axis, ends = plot([[(1, 0.0), (10, 0.5), (100, 0.5)], [(1, 0.0), (100, 0.0)]], "1", "100")
    assert len(rows) == HEIGHT
    assert rows[0].startswith("   50 % ┤")
    assert rows[0].endswith("●" * (WIDTH // 2))
    assert rows[-1].startswith("    0 % ┤●")
    assert rows[-1].endswith("○")
    assert axis.endswith("└" + "─" * WIDTH)
    assert ends.split() == ["1", "100"]


def test_one_size_is_no_curve() -> None:
    assert list(plot([[(5, 0.1)]], "5", "5")) == []
    assert list(plot([], "", "")) == []
