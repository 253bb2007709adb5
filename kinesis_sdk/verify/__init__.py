"""Implementation of `kinesis-sdk verify`: runs the SDK against a service at a bounded cost, and compares the service with the fake.

It uses the core and `kinesis_sdk.admin` in the same way as a user's program.
"""

from kinesis_sdk.verify.meter import LimitReachedError, Meter
from kinesis_sdk.verify.notes import Notes
from kinesis_sdk.verify.policy import policy
from kinesis_sdk.verify.prices import AS_OF, ELSEWHERE, PRICES, REGION, Price
from kinesis_sdk.verify.report import Cost, Difference, Report, StepResult
from kinesis_sdk.verify.run import Plan, PlannedStep, Rehearsal, Verification, rehearse
from kinesis_sdk.verify.scratch import PREFIX, TAG, Leftover, Removal, Remover, Scratch, new_run
from kinesis_sdk.verify.steps import STEPS, Step

__all__ = [
    "AS_OF",
    "Cost",
    "Difference",
    "ELSEWHERE",
    "Leftover",
    "LimitReachedError",
    "Meter",
    "Notes",
    "PREFIX",
    "PRICES",
    "Plan",
    "PlannedStep",
    "Price",
    "REGION",
    "Rehearsal",
    "Removal",
    "Remover",
    "Report",
    "STEPS",
    "Scratch",
    "Step",
    "StepResult",
    "TAG",
    "Verification",
    "new_run",
    "policy",
    "rehearse",
]
