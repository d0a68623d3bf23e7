// How HTML reports look: light and dark, on a screen of any width and on paper.
#pragma once

namespace shadowgraph {

inline constexpr char kHtmlStyle[] = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f8; --panel: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d9dee4;
  --bad: #b3261e; --bad-soft: #fbe6e4; --good: #1a6b3a; --good-soft: #e3f3e8;
  --warn: #7d5200; --warn-soft: #fdf3dc; --bar: #cfe0f4; --accent: #1a5dab; --heat: 31, 95, 174;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121518; --panel: #1b1f24; --ink: #e4e7ea; --soft: #9da7b1; --line: #353c44;
    --bad: #ff8a80; --bad-soft: #41201d; --good: #83d8a3; --good-soft: #17321f;
    --warn: #efc46d; --warn-soft: #362a10; --bar: #27425f; --accent: #8fbcf5; --heat: 120, 175, 240;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .35rem 0; }
a { color: var(--accent); }
code, pre, .mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .87em; }
code, dd, td, th, summary { overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.head { white-space: pre-wrap; }
.verdict { margin: .75rem 0; padding: .6rem .9rem; border-radius: .5rem; font-weight: 600; }
.good { background: var(--good-soft); color: var(--good); }
.bad { background: var(--bad-soft); color: var(--bad); }
.warn { background: var(--warn-soft); color: var(--warn); padding: .5rem .9rem; border-radius: .5rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; min-width: 6.5rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tag { display: inline-block; padding: 0 .5em; border-radius: 1em; font-size: .8rem; font-weight: 600; }
.law { background: var(--panel); border: 1px solid var(--line); border-radius: .6rem; margin: 1rem 0; padding: .9rem 1rem; }
.law > p { max-width: 60rem; }
.card { border-top: 1px solid var(--line); margin-top: .8rem; padding-top: .6rem; }
.card summary { cursor: pointer; font-weight: 600; }
.card dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); }
dd { margin: 0; }
pre { margin: .5rem 0; padding: .5rem .7rem; background: var(--page); border: 1px solid var(--line); border-radius: .4rem;
  white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.id { white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.share { background: linear-gradient(to left, var(--bar) var(--share), transparent 0); }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .2rem .7rem; font-size: .9rem; }
.bars i { display: block; height: 100%; min-height: .9rem; width: var(--share); background: var(--bar); border-radius: .2rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem 1rem 1rem; }
figure { margin: .8rem 0 0; }
figcaption { font-size: .9rem; margin-bottom: .3rem; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .8rem; color: var(--soft); margin-top: .2rem; }
.key span { display: inline-flex; align-items: center; gap: .35rem; }
.drawing { overflow-x: auto; }
svg { display: block; font: 11px ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
svg text { fill: var(--ink); }
svg .name { fill: var(--soft); }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .on { fill: #14171a; }
svg .off { fill: var(--page); stroke: var(--line); }
svg .none { fill: none; stroke: var(--line); }
svg .seen { fill: rgba(var(--heat), .75); stroke: var(--panel); }
svg .wrong { fill: none; stroke: var(--bad); stroke-width: 2.5; }
svg .alarm { fill: var(--bad-soft); stroke: var(--bad); stroke-width: 1.5; }
svg .sign { fill: var(--bad); font-weight: 700; }
svg .rule { stroke: var(--line); }
svg .wrote { fill: rgb(var(--heat)); }
svg .read { fill: var(--panel); stroke: rgb(var(--heat)); stroke-width: 2; }
svg .over { stroke: var(--bad); stroke-width: 1.5; }
svg .o0 { fill: #9ecae9; } svg .o1 { fill: #ffcf8a; } svg .o2 { fill: #b7e09b; } svg .o3 { fill: #d3bfe6; }
svg .o4 { fill: #f2ee9a; } svg .o5 { fill: #f4b6d2; } svg .o6 { fill: #dcc6a8; } svg .o7 { fill: #9fdccd; }
@media (max-width: 34rem) {
  body { padding: 1rem .6rem 3rem; }
  .card dl { grid-template-columns: 1fr; gap: 0; }
  .card dd { margin-bottom: .35rem; }
  th, td { padding: .3rem .45rem; }
}
@media print { body { background: #fff; } .law, .panel { break-inside: avoid; } }
)css";

}  // namespace shadowgraph
