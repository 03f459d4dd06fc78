"""One attempt at a task: from a claimed job to its settlement, as named steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from skillstream.broker import Ending as TaskEnding
from skillstream.broker import Settlement, flat
from skillstream.closing import Verdict, close_from_outside, read_transcript
from skillstream_schemas.errors import FailureCode, MalformedEntry, SkillstreamError, StreamGap, Unpublishable
from skillstream_schemas.event import FinalEvent, HandedBack
from skillstream_schemas.job import pack_result

from .agent import Agent
from .answers import Loss
from .broker import ClaimedJob, Lease
from .chunking import Chunking
from .context import TaskContext
from .endings import elsewhere, of_error, of_stop, of_unreadable, refusal, time_limit, verdict_of
from .finals import final_fields
from .openings import AlreadyFinal, Gone, MustClose, MustRead, Opened, Opening, Stale
from .outcome import Abandon, End, Ending, HandBack, Outcome, StopCause
from .performance import perform
from .preparation import prepare
from .publication import Publication
from .reading import JobReading, read_claimed
from .retry import Retry
from .services import Services
from .skill import Skill
from .skill_run import SkillRun

log = logging.getLogger(__name__)


class Attempt:
    """Responsible for one run of a task by this worker.

    `lease` is the claim that it runs under, `outcome` what became of it once it is over, `hand_back_delay_s` the
    seconds until a next attempt may start. `on_skill_over` is called once, when the skill runs no more or will not run:
    what is left is to write how it ended.
    """

    def __init__(self, services: Services, agent: Agent, claimed: ClaimedJob, on_skill_over: Callable[[], None]) -> None:
        self.lease = Lease(agent.name, claimed.task_id, services.broker.worker, claimed.claim)
        self.outcome: Outcome | None = None
        self._final: Sequence[str] = ()
        self.hand_back_delay_s = 0.0
        self._services, self._agent, self._claimed = services, agent, claimed
        self._started_ms = services.clock.now_ms()
        self._stop: tuple[StopCause, str] | None = None
        self._skill_run: SkillRun | None = None
        self._context: TaskContext | None = None
        self._reading = JobReading(None, None)
        self._on_skill_over: Callable[[], None] | None = on_skill_over

    def __repr__(self) -> str:
        return f"<Attempt {self.lease.task_id} claim={self.lease.claim} stop={self._stop} outcome={self.outcome}>"

    @property
    def final(self) -> dict[str, str]:
        """The fields of the task's final, once that is on the stream."""
        return dict(zip(self._final[::2], self._final[1::2], strict=True))

    @property
    def is_over(self) -> bool:
        """True once nothing more is written or settled by this attempt."""
        return self.outcome is not None

    def stop(self, cause: StopCause, detail: str = "") -> None:
        """Tells the attempt to end; a stronger cause replaces a weaker one. The skill is cancelled where it runs.

        A skill that does not let go is left to itself after `cancel_grace_s`.
        """
        if self._stop is not None and self._stop[0].strength >= cause.strength:
            return
        self._stop = (cause, detail)
        if self._context is not None:
            self._context.cancelled.set()
        if self._skill_run is not None:
            self._skill_run.stop()

    async def run(self) -> Outcome:
        """Runs the attempt to its end; never raises for what a skill or a broker does."""
        try:
            self.outcome = await self._run()
        except SkillstreamError as error:
            # the lease lapses and the job is claimed again; while the broker is away there is no better place
            log.warning("attempt at task %s given up: %s", self.lease.task_id, error)
            self.outcome = Outcome.ABANDONED
        finally:
            self._skill_is_over()
        return self.outcome

    async def _run(self) -> Outcome:
        self._reading = read_claimed(self._agent, self._claimed, self._services.settings.limits)
        try:
            opening, kept = await self._open()
        except (MalformedEntry, StreamGap) as error:
            return await self._close_unreadable(of_unreadable(error))
        match opening:
            case Opened():
                return await self._work(opening, kept)
            case AlreadyFinal():
                self._settle(flat(opening.fields))
                return Outcome.ALREADY_FINAL
            case MustClose():
                return await self._close(verdict_of(opening))
            case Gone():
                log.error("stream_lost: task %s has no stream and is not run", self.lease.task_id)
                return Outcome.GONE
            case _:
                await self._services.broker.release(self.lease)
                return Outcome.SUPERSEDED

    async def _open(self) -> tuple[Opening, str]:
        """Opens the attempt; where it goes on behind older text, that text is read first and returned."""
        broker = self._services.broker
        opening = await broker.open_attempt(self.lease, self._reading.request)
        while isinstance(opening, MustRead | Stale):
            known = await read_transcript(broker, self.lease.task_id)
            if known is None:
                opening = await broker.open_attempt(self.lease, self._reading.request)
                continue
            text = known[1].text
            opening = await broker.open_attempt(self.lease, None, seen=known[1].cursor, keep=len(text))
            if isinstance(opening, Opened):
                return opening, text
        return opening, ""

    async def _work(self, opened: Opened, kept: str) -> Outcome:
        skill = self._agent.skills.get(opened.request.skill)
        publication = Publication(
            self._services.broker,
            self.lease,
            opened.attempt,
            chunking=Chunking() if skill is None else skill.chunking,
            clock=self._services.clock,
            kept=kept,
            on_loss=lambda loss: self.stop(StopCause.UNPUBLISHABLE, loss.value),
        )
        now_ms = self._services.clock.now_ms()
        try:
            refused = refusal(self._agent, self._claimed, self._reading, opened, now_ms)
            if refused is None:
                assert skill is not None
                ending = await self._perform(skill, opened, kept, publication)
            elif refused.error is FailureCode.UNKNOWN_SKILL and await self._services.broker.is_offered(
                self._agent.name, opened.request.skill
            ):
                ending = elsewhere(self._claimed.claims)
            else:
                ending = refused
            return await self._conclude(ending, publication)
        except Unpublishable as error:
            return await self._abandon(error.message, publication)
        finally:
            publication.close()

    async def _perform(self, skill: Skill, opened: Opened, kept: str, publication: Publication) -> Ending:
        request = opened.request
        services = self._services
        prepared = await prepare(services.broker, services.client, self.lease, opened, kept, publication)
        if isinstance(prepared, End):
            return prepared
        self._context = prepared
        limit = time_limit(skill, request, self._services.clock.now_ms())
        if self._stop is not None:  # while the history was read
            return of_stop(*self._stop, request, limit)
        work = perform(skill, request.message, self._context, publication, self._services.settings.limits)
        label = f"{self._agent.name}/{skill.name} of task {self.lease.task_id}"
        run = self._skill_run = SkillRun(work, label, self._services.settings.cancel_grace_s, self._services.strays)
        if limit.seconds is not None:
            run.limit(limit.seconds, partial(self.stop, StopCause.TIME_OVER))
        result = await run.wait()
        self._skill_is_over()
        if result is None:
            publication.fence()
        told = self._told()
        # a skill that swallowed its cancellation has no say in how the task ends; one that was done before a drain has
        if told is None or (told[0] is StopCause.DRAIN and (isinstance(result, End) or not run.was_told)):
            assert result is not None
            return self._ending_of(result, skill, opened)
        return of_stop(*told, request, limit)

    def _ending_of(self, result: End | BaseException, skill: Skill, opened: Opened) -> Ending:
        if isinstance(result, End):
            return result
        if isinstance(result, asyncio.CancelledError):
            return End.failed(FailureCode.SKILL_ERROR, "CancelledError: the skill cancelled itself")
        label = f"skill {skill.name} at task {self.lease.task_id}"
        if isinstance(result, Retry):
            log.info("%s asks for another attempt: %s", label, result)
            log.debug("%s asked here", label, exc_info=result)
        else:
            log.warning("%s raised %s: %s", label, type(result).__name__, result, exc_info=result)
        return of_error(result, skill, opened, self.lease.worker)

    def _skill_is_over(self) -> None:
        if self._on_skill_over is not None:
            self._on_skill_over()
            self._on_skill_over = None

    def _told(self) -> tuple[StopCause, str] | None:
        return self._stop

    async def _conclude(self, ending: Ending, publication: Publication) -> Outcome:
        match ending:
            case End():
                return await self._finish(ending, publication)
            case HandBack():
                self.hand_back_delay_s = ending.delay_s
                delay_ms = int(ending.delay_s * 1000)
                if delay_ms:
                    await self._services.broker.extend([self.lease], delay_ms=delay_ms)
                await publication.hand_back(ending.why)
                await self._services.broker.release(self.lease, delay_ms=delay_ms)
                return Outcome.ELSEWHERE if ending.why is HandedBack.ELSEWHERE else Outcome.HANDED_BACK
            case Abandon():
                return await self._abandon(ending.reason, publication)

    async def _finish(self, end: End, publication: Publication) -> Outcome:
        await publication.flush()
        text = publication.text if publication.has_text else end.own_text
        usage = self._context.counted if self._context is not None else {}
        fields = final_fields(self._agent.name, end, text, publication.chunks, usage)
        at_ms = await publication.finish(fields)
        if at_ms is None:
            return await self._abandon(str(publication.loss), publication)
        self._settle([*fields, "at", str(at_ms)])
        return Outcome.FINISHED

    async def _abandon(self, reason: str, publication: Publication) -> Outcome:
        log.warning("attempt at task %s given up: %s", self.lease.task_id, reason)
        if publication.loss is Loss.WENT_BACK:
            await self._services.broker.release(self.lease)  # the lease is ours: let another attempt begin at once
        return Outcome.ABANDONED

    async def _close(self, verdict: Verdict) -> Outcome:
        try:
            final = await close_from_outside(self._services.broker, self.lease.task_id, verdict, self.lease.worker)
        except (MalformedEntry, StreamGap) as error:
            log.error("the text of task %s is not kept: %s", self.lease.task_id, error)
            return await self._close_unreadable(verdict)
        self._settle(flat(final.to_fields()))
        return Outcome.CLOSED

    async def _close_unreadable(self, verdict: Verdict) -> Outcome:
        """Ends a task whose stream cannot be read, without its text: it would be claimed and given up for ever."""
        broker, task_id = self._services.broker, self.lease.task_id
        log.error("task %s cannot be read and is closed: %s", task_id, verdict.reason)
        final = verdict.final(self._agent.name)
        written: FinalEvent | None = None
        while written is None:
            top = await broker.look(task_id, 1)
            if top.id is None:
                return Outcome.GONE
            keep = 0 if top.id.attempt else None
            try:
                written = await broker.close_task(task_id, TaskEnding(final, top.id, keep), self.lease.worker)
            except MalformedEntry:
                break  # a final stands there that cannot be read either
        self._settle(flat(final.to_fields()))
        return Outcome.CLOSED

    def _settle(self, final: Sequence[str]) -> None:
        """Has the job leave the queue: only called with an answer in hand that a final is on the stream."""
        self._final = final
        result = None
        job = self._reading.job
        if job is not None and job.is_stock:
            result = pack_result(
                job, self._agent.name, self.lease.task_id, attempt=self._claimed.claims, final=self.final,
                started_ms=self._started_ms, finished_ms=self._services.clock.now_ms(),
            )  # fmt: skip
        self._services.settler.settle(self._agent.name, Settlement(self.lease.task_id, result))
