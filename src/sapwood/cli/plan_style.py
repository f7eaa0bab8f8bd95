"""How a plan's page looks: light and dark, wide and narrow."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark;
  --ink: #1f2328; --soft: #59636e; --rule: #d1d9e0; --page: #ffffff; --card: #f6f8fa;
  --good: #1a7f37; --bad: #c2410c; --optimum: #59636e;
  --line0: #1a7f37; --line1: #0969da; --line2: #bf8700; --line3: #8250df; --line4: #cf222e; --line5: #0598bc;
  --line6: #bf3989; --line7: #6e7781 }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6edf3; --soft: #9198a1; --rule: #3d444d; --page: #0d1117; --card: #151b23;
  --good: #3fb950; --bad: #f0883e; --optimum: #9198a1;
  --line0: #3fb950; --line1: #4493f8; --line2: #d29922; --line3: #ab7df8; --line4: #f85149; --line5: #39c5cf;
  --line6: #db61a2; --line7: #9198a1 } }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1rem; font-weight: 600; color: var(--soft); margin: 0 0 .5rem }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem }
p.answer { font-size: 1.45rem; line-height: 1.3; font-weight: 600; margin: .2rem 0 1rem; max-width: 52rem }
p.soft, dd, footer, ul.notes, summary { color: var(--soft) }
p.soft { margin: .2rem 0 .8rem }
ul.notes { margin: .2rem 0 1rem; padding-left: 1.2rem; font-size: .9rem; max-width: 60rem }
summary { font-size: .9rem; cursor: pointer }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0 }
.card { background: var(--card); border-radius: .5rem; padding: .6rem .8rem }
.card b { display: block; font-size: 1.15rem }
.card span { color: var(--soft); font-size: .85rem }
.good { color: var(--good) }
.bad { color: var(--bad) }
svg { width: 100%; max-width: 42rem; height: auto; display: block }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .88rem }
th { color: var(--soft); font-weight: 500; vertical-align: bottom }
th, td { text-align: right; padding: .25rem .45rem; border-bottom: 1px solid var(--rule) }
td { white-space: nowrap }
th:first-child, td:first-child, td.remark { text-align: left; white-space: normal }
tr.here { background: var(--card) }
tr.here td { font-weight: 600 }
td i { display: block; position: relative; min-width: 5rem; height: .3rem; margin: .15rem 0; background: var(--rule) }
td u { position: absolute; inset: 0 auto 0 0; background: var(--soft) }
td i.good u { background: var(--good) }
td i.bad u { background: var(--bad) }
td s { position: absolute; top: -.2rem; bottom: -.2rem; width: 2px; background: var(--ink) }
dl { max-width: 60rem }
dt { font-weight: 600; margin-top: .5rem }
dd { margin: 0 }
code { font-size: .85rem; overflow-wrap: anywhere }
@media (max-width: 44rem) { body { padding: 1rem } p.answer { font-size: 1.2rem } }
"""
_STACKED = """
@media (max-width: %s) {
  %s, %s tbody { display: block }
  %s tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(5.6rem, 1fr)); padding: .4rem 0;
    border-bottom: 1px solid var(--rule) }
  %s tr:first-child { display: none }
  %s td { text-align: left; border: 0; padding: .1rem .3rem; align-self: end }
  %s td:empty { display: none }
  %s td:first-child, %s td.remark { grid-column: 1 / -1; font-weight: 600 }
  %s td::before { content: attr(data-of); display: block; white-space: normal; line-height: 1.2; font-weight: 400;
    font-size: .78rem; color: var(--soft) }
}
"""


def stacked(table: str, below: str) -> str:
    """Tables that `table` selects, on pages narrower than `below`: each row a block, each number below its name."""
    return _STACKED % (below, *[table] * (_STACKED.count("%s") - 1))
