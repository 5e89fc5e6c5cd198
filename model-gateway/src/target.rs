//! One configured way to a model, with its policy around it: deadline, bulkhead, retry, timeout, then the dialect.

use std::sync::Arc;
use std::time::Duration;

use ambit_core::session::ModelFault;
use ambit_core::signal::{DependencyKind, Signal, SignalSink, Subject, Timer};
use ambit_core::{AttemptRecord, Cause};
use ambit_resilience::{Bulkhead, CallContext, Failure, Ledger, Outcome, Permit, Policy, PolicyError, PolicyOptions, Reserve, Row};
use tokio::time::Instant;

use crate::chat::{ModelCall, ModelFailure, ModelOutcome, NUDGE, ToolChoice, Turn};
use crate::dialect::{Answer, Ask, Dialect};
use crate::options::TargetOptions;
use crate::peer;
use crate::stage::Stage;
use crate::usage::{self, Bill, Ratio, Reservation};

/// Metric label of everything that is a model.
const DEPENDENCY: &str = "model";

/// One configured model.
pub(crate) struct Target {
    options: TargetOptions,
    dialect: Dialect,
    policy: Policy,
    ratio: Ratio,
    hold: Duration,
    sink: Arc<dyn SignalSink>,
}

impl Target {
    pub(crate) fn new(
        options: TargetOptions,
        dialect: Dialect,
        hold: Duration,
        seed: u64,
        bulkhead: Bulkhead,
        sink: Arc<dyn SignalSink>,
    ) -> Self {
        let policy = Policy::new(
            PolicyOptions {
                kind: DependencyKind::Model,
                dependency: DEPENDENCY.into(),
                target: Arc::clone(&options.name),
                peer: Arc::new(peer::of(&options)),
                request: options.request,
                attempt: options.attempt,
                margin: options.margin,
                min_useful: options.min_useful,
                retry: options.retry,
                seed,
            },
            bulkhead,
            Arc::clone(&sink),
        );
        Self { options, dialect, policy, ratio: Ratio::default(), hold, sink }
    }

    /// Goes on with what a former target has learned about the same model.
    pub(crate) fn learned_from(self, former: &Self) -> Self {
        if self.options.model == former.options.model { Self { ratio: former.ratio.handed_on(), ..self } } else { self }
    }

    pub(crate) const fn options(&self) -> &TargetOptions {
        &self.options
    }

    pub(crate) const fn bulkhead(&self) -> &Bulkhead {
        self.policy.bulkhead()
    }

    /// Asks for one turn.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection and returns the permit.
    pub(crate) async fn call(&self, chain: &Arc<str>, call: ModelCall<'_>, permit: Option<Permit>) -> ModelOutcome {
        let finish = Finish { target: self, chain, subject: call.subject, started: Instant::now(), outcome: None };
        let may_call = call.tool_choice == ToolChoice::Auto && !call.tools.is_empty();
        let stage = Stage::new(call.text, may_call.then_some(self.hold), call.trace_state);
        let ledger = Ledger::new(&call.allowance, call.deadline);
        let notice = notice(&call);
        let max_output = self.options.max_output_tokens.map_or(call.max_output, |max| call.max_output.min(max.get()));
        let chars = call.conversation.chars().saturating_add(call.tools.chars());
        let reserved = Reservation::new(self.ratio.estimate(chars), max_output.into(), self.options.price, ledger.left());
        let ask = Ask {
            target: &self.options.name,
            model: &self.options.model,
            conversation: call.conversation,
            tools: call.tools,
            tool_choice: call.tool_choice,
            notice: notice.as_deref(),
            max_output,
        };
        let context = CallContext {
            deadline: call.deadline,
            subject: call.subject,
            ledger: &ledger,
            reserve: reserved.reserve(),
            // A completion has no effect: asking again costs money and nothing else.
            repeatable: true,
            admission: permit,
            fresh: false,
            committed: stage.committed(),
        };
        let called = self
            .policy
            .call(context, |leg| {
                let leg = stage.leg(leg);
                let (ask, ledger, reserve) = (&ask, &ledger, reserved.reserve());
                async move {
                    let result = self.dialect.ask(ask, &leg).await;
                    let used = match leg.bill() {
                        Bill::Nothing => Reserve::NONE,
                        Bill::Reported(usage) => usage.spent(self.options.price),
                        Bill::Unknown => reserve,
                    };
                    ledger.settle(reserve, used);
                    let answer = result?;
                    if answer.is_empty() {
                        leg.keep_empty(answer);
                        return Err(Failure::new(Outcome::Empty));
                    }
                    leg.whole(&answer);
                    Ok(answer)
                }
            })
            .await;

        let price = self.options.price;
        let attempts: Vec<_> =
            called.legs.into_iter().enumerate().map(|(index, leg)| usage::record(leg, stage.bill(index), &reserved, price)).collect();
        // The permit covered the body, which has been read.
        let result = called.result.map(|(answer, _permit)| answer);
        let result = match result {
            Ok(answer) => Ok(answer),
            Err(error) => stage.take_empty().filter(|_| is_empty_answer(&error)).ok_or(error),
        };
        let result = match result {
            Ok(answer) => Ok(self.turn(&call, answer, chars)),
            Err(error) => Err(failure(&error, &stage, call.tool_choice)),
        };
        let outcome = ModelOutcome { attempts, result };
        finish.with(&outcome);
        outcome
    }

    fn turn(&self, call: &ModelCall<'_>, mut answer: Answer, chars: u64) -> Turn {
        call.conversation.settle_ids(&mut answer.calls);
        let usage = answer.usage.unwrap_or_default();
        Turn {
            text: (!answer.text.is_empty()).then(|| answer.text.into()),
            calls: answer.calls,
            carry: answer.carry.map(Arc::from),
            finish: answer.finish,
            served_by: Arc::clone(&self.options.name),
            model: answer.model.map_or_else(|| Arc::clone(&self.options.model), Arc::from),
            input_tokens: usage.input,
            output_tokens: usage.output,
            tokens_per_kchar: self.ratio.learn(usage.input, chars),
        }
    }
}

/// Says at the end of a logical call what came of it, also if its future is dropped.
struct Finish<'a> {
    target: &'a Target,
    chain: &'a Arc<str>,
    subject: Subject,
    started: Instant,
    outcome: Option<(Arc<str>, Sums)>,
}

/// What all attempts of a call used together.
#[derive(Default)]
struct Sums {
    input_tokens: u64,
    output_tokens: u64,
    cost: u64,
}

impl Finish<'_> {
    fn with(mut self, outcome: &ModelOutcome) {
        let name = match (&outcome.result, outcome.attempts.last()) {
            // `ok`, or `empty`: a turn in which nothing was said.
            (Ok(_), Some(last)) => Arc::clone(&last.code),
            (Ok(_), None) => "ok".into(),
            (Err(failure), _) => Arc::clone(&failure.code),
        };
        let sum = |of: fn(&AttemptRecord) -> u64| outcome.attempts.iter().map(of).fold(0, u64::saturating_add);
        let sums = Sums {
            input_tokens: sum(|record| record.input_tokens),
            output_tokens: sum(|record| record.output_tokens),
            cost: sum(|record| record.cost.0),
        };
        self.outcome = Some((name, sums));
    }
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let (outcome, sums) = self.outcome.take().unwrap_or_else(|| ("cancelled".into(), Sums::default()));
        self.target.sink.emit(
            self.subject,
            &Signal::ModelCallFinished {
                chain: Arc::clone(self.chain),
                target: Arc::clone(&self.target.options.name),
                outcome,
                duration: self.started.elapsed(),
                input_tokens: sums.input_tokens,
                output_tokens: sums.output_tokens,
                cost_usd: ambit_core::Money(sums.cost).usd(),
            },
        );
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", &self.options.name).field("policy", &self.policy).finish_non_exhaustive()
    }
}

fn notice(call: &ModelCall<'_>) -> Option<String> {
    let parts: Vec<&str> = call.nudge.then_some(NUDGE).into_iter().chain(call.notice).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

fn is_empty_answer(error: &PolicyError) -> bool {
    matches!(error, PolicyError::Failed(failure) if failure.class.row == Row::Empty)
}

/// What a policy's error is in the machine's words, and in people's.
///
/// Text that nobody has read yet is part of it, but not where time ran out before the last call: that one is still to
/// come, and answers whole.
fn failure(error: &PolicyError, stage: &Stage<'_>, choice: ToolChoice) -> ModelFailure {
    let out_of_time = matches!(error, PolicyError::Failed(failure) if matches!(failure.class.row, Row::DeadlineCut | Row::DeadlineSpent));
    let partial = if out_of_time && choice == ToolChoice::Auto { stage.passed() } else { stage.produced() };
    let partial = partial.map(Arc::<str>::from);
    let (fault, code, detail, status, retry_after) = match error {
        PolicyError::DeadlineExceeded => (ModelFault::Deadline, "no_time".into(), error.to_string(), None, None),
        PolicyError::AllowanceSpent => (ModelFault::Allowance, "allowance".into(), error.to_string(), None, None),
        PolicyError::Saturated(full) => (ModelFault::Saturated, "saturated".into(), full.to_string(), None, Some(full.retry_after)),
        PolicyError::Failed(failure) => {
            let detail = stage.detail().filter(|_| failure.timer.is_none_or(|timer| timer == Timer::Chunk || timer == Timer::Connect));
            let detail = detail.unwrap_or_else(|| in_words(failure));
            (fault(failure, partial.is_some()), Arc::clone(&failure.code), detail, failure.status, failure.retry_after)
        }
    };
    ModelFailure { fault, partial, detail, code, status, retry_after }
}

fn in_words(failure: &Failure) -> String {
    match failure.timer {
        Some(Timer::Attempt) => "the provider did not begin to answer in time (`attempt`)".to_owned(),
        Some(Timer::Request) => "the provider did not finish its answer in time (`request`)".to_owned(),
        Some(Timer::Deadline) => "the deadline came in the middle of the answer".to_owned(),
        Some(Timer::Connect | Timer::Chunk) | None => failure.to_string(),
    }
}

fn fault(failure: &Failure, passed_on: bool) -> ModelFault {
    let unavailable = |cause| ModelFault::Unavailable(if passed_on { Cause::StreamBroken } else { cause });
    match failure.class.row {
        Row::Mistake => ModelFault::Mistake,
        Row::ContextLength => ModelFault::Context,
        Row::ContentFiltered => ModelFault::ContentFiltered,
        // Another path or model has to be configured: nothing in the request is wrong.
        Row::Rejected | Row::Incapable if failure.status == Some(404) => unavailable(Cause::NotFound),
        Row::Rejected | Row::Incapable | Row::Conflict => match failure.status {
            Some(300..400) => unavailable(Cause::NotFound),
            _ => ModelFault::Rejected,
        },
        Row::Unauthorised => unavailable(Cause::Auth),
        Row::OutOfQuota => unavailable(Cause::Quota),
        Row::RateLimited => unavailable(Cause::RateLimited),
        Row::NotReady | Row::Overloaded | Row::Shedding => unavailable(Cause::Overloaded),
        Row::Malformed if &*failure.code == "stream_broken" => unavailable(Cause::StreamBroken),
        Row::Malformed | Row::Empty | Row::OutputInvalid | Row::SessionExpired => unavailable(Cause::Protocol),
        Row::ServerError | Row::NeverArrived | Row::Broken => unavailable(Cause::Unreachable),
        Row::TimedOut if failure.timer == Some(Timer::Chunk) => unavailable(Cause::StreamBroken),
        Row::TimedOut => unavailable(Cause::Unreachable),
        // Its own time was over and the session's is not: the provider is too slow.
        Row::DeadlineCut | Row::DeadlineSpent if failure.timer == Some(Timer::Request) => unavailable(Cause::Unreachable),
        Row::DeadlineCut | Row::DeadlineSpent => ModelFault::Deadline,
        Row::Cancelled | Row::HedgeLost => ModelFault::Abandoned,
        Row::Answered | Row::RefusedByTarget | Row::RefusedByUs => ModelFault::Internal,
    }
}
