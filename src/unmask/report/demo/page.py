"""The comparison as one self-contained HTML page."""

import base64
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from unmask.lab.demo import FAMILIES, DemoComparison
from unmask.report.demo.figure import BASELINE, COLOURS
from unmask.report.demo.summary import DemoSummary, summarise

_STYLE = """
:root { color-scheme: light; --ink: #222; --soft: #666; --line: #e4e4e4; --wash: #fafafa; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 28px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 40px 0 10px; }
p { max-width: 78ch; margin: 0 0 10px; }
.lead { color: var(--soft); font-size: 16px; margin-bottom: 22px; }
figure { margin: 0; padding: 12px; border: 1px solid var(--line); border-radius: 8px; }
img { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: right; font-weight: 600; color: var(--soft); border-bottom: 1px solid #bbb; padding: 6px 10px;
  white-space: nowrap; vertical-align: bottom; }
td { text-align: right; border-bottom: 1px solid var(--line); padding: 5px 10px; white-space: nowrap; }
th:first-child, td:first-child, .left { text-align: left; }
tbody tr:hover { background: var(--wash); }
.baseline td { color: var(--soft); font-style: italic; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 8px; background: var(--own); }
.hollow { background: #fff; border: 1.5px solid var(--own); }
.bar { display: inline-block; width: 90px; height: 7px; background: #eee; border-radius: 4px; margin-right: 8px;
  vertical-align: middle; overflow: hidden; }
.bar i { display: block; height: 100%; border-radius: 4px; background: var(--own); }
.se { color: var(--soft); font-size: 12px; display: inline-block; min-width: 4.6em; text-align: left; }
.wrap { white-space: normal; }
code, pre { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 8px; padding: 14px; overflow: auto;
  max-height: 420px; }
summary { cursor: pointer; color: var(--soft); margin: 14px 0 8px; }
footer { margin-top: 44px; color: var(--soft); font-size: 13px; border-top: 1px solid var(--line); padding-top: 12px; }
"""


def page(comparison: DemoComparison, png: bytes) -> str:
    """HTML with the style and the figure inside: one file to keep or to send."""
    summaries = summarise(comparison.rows)
    config = comparison.config
    count = len(config["problems"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Unmasking policies compared</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Unmasking policies on {count} problems with known answers</h1>
<p class="lead">How close does each policy come to the most probable answer, and how many denoiser forwards does it
spend? The denoiser here is exact, so every shortfall is the policy's own.</p>
<figure><img alt="Left: expected utility against forwards per answer. Right: the step at which each policy revealed
each position of one example." src="data:image/png;base64,{base64.b64encode(png).decode()}"></figure>
<h2>Results</h2>
<div class="wide">{_results(summaries)}</div>
{_how_to_read(config)}
<h2>Configuration</h2>
<div class="wide">{_problems(config)}</div>
<div class="wide">{_policies(config)}</div>
<details><summary>All of it, as JSON</summary><pre>{escape(json.dumps(config, indent=2))}</pre></details>
<footer>{escape(_versions(config))}</footer>
</main>
</body>
</html>
"""


def _results(summaries: Sequence[DemoSummary]) -> str:
    families = "".join(f"<th>{escape(family)}</th>" for family in summaries[0].by_family)
    rows = "\n".join(map(_result, summaries))
    return (
        '<table><thead><tr><th>policy</th><th class="left">expected utility</th><th>forwards</th>'
        f'<th>tokens per<br>forward</th>{families}<th class="left">computed</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _result(s: DemoSummary) -> str:
    colour = COLOURS.get(s.method, BASELINE)
    row, dot = ("baseline", "dot hollow") if s.baseline else ("policy", "dot")
    star = " ★" if s.frontier else ""
    error = "" if s.deterministic else f"± {s.stderr:.3f}"
    families = "".join(f"<td>{value:.3f}</td>" for value in s.by_family.values())
    return (
        f'<tr class="{row}"><td><span class="{dot}" style="--own:{colour}"></span>{escape(s.label)}{star}</td>'
        f'<td class="left"><span class="bar"><i style="width:{100 * s.utility:.1f}%;--own:{colour}"></i></span>'
        f'{s.utility:.3f} <span class="se">{error}</span></td>'
        f"<td>{s.show_forwards}</td><td>{s.show_speed}</td>{families}"
        f'<td class="left">{escape(s.computed)}</td></tr>'
    )


def _how_to_read(config: dict[str, Any]) -> str:
    return f"""<h2>How to read this</h2>
<p><b>Utility</b> of an answer is its probability divided by that of the most probable answer to the same prompt, so 1
is the best there is. It is expected over every prompt of a problem, weighted by the prompt's probability, and
averaged over the problems, each counting the same. The columns by family are the same numbers for one kind of
dependence between positions.</p>
<p><b>Computed</b>: a policy that draws no random number has one answer per prompt, and its expected utility is exact.
For the others it is the mean over {config["seeds"]} seeds; ± is the standard error of that mean, and nothing else.
Tokens are always the most probable ones (temperature {config["temperature"]:g}).</p>
<p><b>Forwards</b> are denoiser passes per answer, looks ahead included. <b>★</b> and the grey line mark policies that
no other one here beats in utility without more forwards. <b>Hollow points</b> are baselines: the most probable answer
(found by enumeration, no forwards) and every position at once by its own most probable token.</p>
<p>These are small synthetic distributions. They show how policies differ and that the decoder does what it says; how
they rank on a language model is another question.</p>"""


def _problems(config: dict[str, Any]) -> str:
    first = config["problems"][0]
    used: dict[str, list[int]] = {}
    for problem in config["problems"]:
        used.setdefault(problem["family"], []).append(problem["seed"])
    rows = "".join(
        f'<tr><td>{escape(family)}</td><td class="left wrap">{escape(FAMILIES.get(family, ""))}</td>'
        f'<td class="left">{escape(", ".join(map(str, seeds)))}</td></tr>'
        for family, seeds in used.items()
    )
    about = (
        f"{first['n']} positions, {first['vocab']} tokens, dependence {first['dependence']:g}; prompts are the first "
        f"{first['prompt_length']} positions, all {first['vocab'] ** first['prompt_length']} of them."
    )
    return (
        f"<p>Each problem is a random joint distribution over {escape(about)}</p>"
        '<table><thead><tr><th>family</th><th class="left">dependence</th><th class="left">seeds of the '
        f"distributions</th></tr></thead><tbody>{rows}</tbody></table><br>"
    )


def _policies(config: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td>{escape(c["label"])}</td><td class="left">{escape(c["policy"]["name"])}</td>'
        f'<td>{c["steps"]}</td><td class="left wrap"><code>{escape(_settings(c["policy"]))}</code></td></tr>'
        for c in config["contenders"]
    )
    return (
        '<table><thead><tr><th>policy</th><th class="left">method</th><th>steps</th><th class="left">settings</th>'
        f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _settings(policy: dict[str, Any], path: str = "") -> str:
    parts = []
    for key, value in policy.items():
        if isinstance(value, dict):
            parts.append(_settings(value, f"{path}{key}."))
        elif key != "name":
            parts.append(f"{path}{key}={json.dumps(value)}")
        elif path:
            parts.append(f"{path[:-1]}={value}")
    return ", ".join(parts)


def _versions(config: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in config["versions"].items())
