"""What a run counts."""

from attrs import define


@define
class Tally:
    """What was done, and what was exercised."""

    steps: int = 0
    prefill_tokens: int = 0
    """Prompt tokens computed."""
    cached_tokens: int = 0
    """Prompt tokens that a hit made unnecessary."""
    hits: int = 0
    """Requests with a hit."""
    completed: int = 0
    cancelled_in_flight: int = 0
    """Cancels that were accepted while a step that serves the request was launched, held back, and not done."""
    cancelled_running: int = 0
    """Cancels of running requests, those in flight included."""
    cancelled_queued: int = 0
    """Cancels of requests in the queue."""
    cancelled_reserved: int = 0
    """Cancels of requests that were admitted and not started."""
    cross_scope: int = 0
    """Lookups for which another tenant had more of the prompt than the own one."""
    cross_scope_twins: int = 0
    """Those of them by requests whose whole prompt the other tenant had offered."""
    scrubbed_pages: int = 0
    grown: int = 0
    """Times that a request got more than was reserved for it at first."""
    growth_denied: int = 0
    """Times that it had to wait for more."""
    stopped_for_growth: int = 0
    """Requests that were stopped since none of those that waited for more could go on."""
    epochs: int = 0
    """Changes of weights."""
    workers_killed: int = 0
    processes_killed: int = 0
    """Of them, those that were a process of their own, ended by SIGKILL."""
    suspected: int = 0
    """Executions of dead workers whose lease ran out: charged all the same, until the fence."""
    lost_in_flight: int = 0
    """Executions whose step was launched and not done when their worker was killed."""
