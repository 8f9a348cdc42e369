"""Rule for the bubble of a pipeline: its stages wait for their first microbatch, and for their last ones."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.core.text.wording import format_percent

_ADVICE = (
    "Pass `n_microbatches={1}` or more to the schedule, give all stages as much to compute, or use "
    "`ScheduleInterleaved1F1B` with several stages per rank. A balanced schedule with as many microbatches would wait "
    "for {0} of a step."
)


@rule("pipeline_bubble", requires=("communication",))
def find_pipeline_bubble(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose waits for messages. Where a stage is slow, they are evidence of the straggler."""
    communication = evidence.communication
    if communication is None or (pipeline := communication.pipeline) is None or evidence.slow_stages.ranks:
        return
    schedule = f"({pipeline.num_stages} stages, {pipeline.num_microbatches} microbatches)"
    yield Diagnosis(
        title=lambda cost_ns: f"Pipeline bubble: {format_percent(cost_ns / evidence.step_ns)} of the step {schedule}",
        advice=_ADVICE.format(format_percent(pipeline.schedule_share), 2 * pipeline.num_microbatches),
        cost_ns=communication.exposed_ns * communication.message_waits.of_messages,
        fix=None,
        evidence=communication.evidence_of_bubble,
        is_estimate=True,
        is_on_gpu=True,
    )
