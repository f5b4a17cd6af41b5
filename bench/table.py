"""The table of measured arms (harness.py): ratios are taken within rounds; their median comes with
a bootstrap interval. One arm is measured twice, A against A."""

import dataclasses
import statistics

from bench.harness import Arm
from bench.interval import interval

# Steps whose losses are compared, and how far apart they may be: float32 rounding at the losses'
# size.
LOSS_STEPS = 100
LOSS_TOLERANCE = 1e-5
# The end of the name of an arm with the programs of another commit.
BEFORE = ", before"


@dataclasses.dataclass
class Table:
    title: str
    subject: Arm  # whose ratio to each arm and distance in loss are told
    subject_name: str  # "Muster's"
    base: Arm  # to which each arm's ratio is told
    base_name: str
    twins: tuple  # the two arms that are the same
    other_gradients: tuple = ()  # names of arms whose losses are no concern
    columns: tuple = ()  # more of them: (heading, function of an arm)

    def print(self, arms, rounds):
        times = {arm.name: [mean for mean, _ in arm.measured] for arm in arms}

        def ratio(arm, base):
            return interval([a / b for a, b in zip(times[arm.name], times[base.name])])

        _, low, high = ratio(self.twins[1], self.twins[0])
        blocks = self.subject.blocks_used
        resolved = low <= 1 <= high and 0.98 <= low and high <= 1.02 and len(blocks) >= 15
        print(f"\n### {self.title}\n")
        headings = ["", "ms per step", "CPU s per step", f"ratio to {self.base_name} (95%)"]
        headings += [
            f"{self.subject_name} ratio to it (95%)",
            *(heading for heading, _ in self.columns),
        ]
        print(f"| {' | '.join(headings).strip()} |")
        print("|---" * len(headings) + "|")
        for arm in arms:
            cells = [
                arm.name,
                f"{1e3 * statistics.median(times[arm.name]):.1f}",
                f"{statistics.median(cpu for _, cpu in arm.measured):.3f}",
                "1" if arm is self.base else "%.3f (%.3f to %.3f)" % ratio(arm, self.base),
                "1" if arm is self.subject else "%.3f (%.3f to %.3f)" % ratio(self.subject, arm),
                *(value(arm) for _, value in self.columns),
            ]
            print(f"| {' | '.join(cells)} |")
        for arm in arms:
            if arm.name.endswith(BEFORE):
                pairs = zip(self.subject.measured, arm.measured)
                cpu = interval([now / former for (_, now), (_, former) in pairs])
                print("\nCPU seconds per step, now to before: %.3f (%.3f to %.3f)." % cpu)
        foreign = [block.foreign / block.wall for arm in arms for block in arm.blocks_used]
        print(
            f"\n{len(blocks)} quiet rounds of {rounds}; other processes used "
            f"{statistics.median(foreign):.2f} cores in their median block, {max(foreign):.2f} "
            f"in the worst."
        )
        if not resolved:
            print(
                "\n**No resolution, no claim**: A against A is not within 2% of 1, its interval "
                "leaves 1 out, or there are fewer than 15 rounds."
            )

        print("\nLosses after steps 1, 10, 50, 100:")
        expected = self.subject.losses()
        for arm in arms:
            losses = arm.losses()
            shown = ", ".join(
                f"{losses[step - 1]:.6f}" for step in (1, 10, 50, 100) if step <= len(losses)
            )
            compared = min(len(losses), len(expected), LOSS_STEPS)
            apart = max(abs(a - b) for a, b in zip(losses[:compared], expected))
            verdict = f"at most {apart:.1e} from {self.subject_name} in {compared} steps"
            if arm.name in self.other_gradients:
                verdict = "other gradients, so other losses"
            elif apart > LOSS_TOLERANCE:
                verdict += ": **void**"
            print(f"- {arm.name}: {shown}; {verdict}", flush=True)
