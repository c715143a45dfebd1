"""``python -m graph_rewrite.soundness.instances``: the instances of rules, or their numbers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import registered_rules
from graph_rewrite.soundness.instances.enumeration import Tally, instances


def summary(rules: Iterable[Rule], *, full: bool, seed: int = 0) -> Iterator[tuple[str, int, Tally, float]]:
    """Per rule: its name, the number of instances, what was tried for them, and seconds of computing."""
    for rule in rules:
        tally, start = Tally(), time.process_time()
        count = sum(1 for _ in instances(rule, full=full, seed=seed, tally=tally))
        yield rule.name, count, tally, time.process_time() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of rules and how many instances they have, or the instances of the rules named."""
    parser = argparse.ArgumentParser(prog="python -m graph_rewrite.soundness.instances", description=main.__doc__)
    parser.add_argument("rules", nargs="*", help="names of rules; all by default")
    parser.add_argument("--summary", action="store_true", help="numbers alone, not the instances")
    parser.add_argument("--full", action="store_true", help="as many instances as the caps allow")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    rules = [rule for rule in registered_rules() if not options.rules or rule.name in options.rules]
    unknown = sorted(set(options.rules) - {rule.name for rule in rules})
    if unknown:
        parser.error(f"there is no rule {unknown[0]}; `rewritegym rules list` names them")
    if options.summary:
        print(f"{'rule':40} {'instances':>9} {'tried':>6} {'refused':>8} {'impossible':>10} {'seconds':>8}")
        for name, count, tally, seconds in summary(rules, full=options.full, seed=options.seed):
            end = "  all there are" if tally.exhausted else ""
            print(f"{name:40} {count:9} {tally.tried:6} {tally.refused:8} {tally.impossible:10} {seconds:8.2f}{end}")
        return 0
    for rule in rules:
        for instance in instances(rule, full=options.full, seed=options.seed):
            print(f"{rule.name} {instance.label}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
