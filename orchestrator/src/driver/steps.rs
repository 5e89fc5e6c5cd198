//! The steps themselves: one future each, run as a task of its session, ending in one answer.

use std::sync::Arc;

use ambit_core::port::{BeforeSend, BoxFuture};
use ambit_core::session::Event;
use ambit_core::signal::Subject;
use ambit_core::{Allowance, Reason, Step};
use ambit_model_gateway::{Admission, Chain, ModelCall, ModelOutcome, ToolChoice, Tools};
use ambit_tool_executor::{Executor, ToolOutcome, ToolRun};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::driver::live::Mail;
use crate::driver::text::{LiveText, PIECE_AGE, Pieces};
use crate::notice::notice;
use crate::rendered::Rendered;

/// What a step came to.
pub(crate) enum Answer {
    /// A model call; the conversation comes back with it.
    Model { step: Step, outcome: Box<ModelOutcome>, rendered: Box<Rendered> },
    /// A tool call.
    Tool { step: Step, outcome: ToolOutcome },
    /// A step that this version answers by itself.
    Ready(Event),
}

/// An answer, and between which instants it was waited for.
pub(crate) struct Done {
    pub(crate) answer: Answer,
    pub(crate) waited: (Instant, Instant),
}

/// What a model call needs, owned.
pub(crate) struct ModelStep {
    pub(crate) step: Step,
    pub(crate) chain: Arc<Chain>,
    pub(crate) rendered: Box<Rendered>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) last: Option<Reason>,
    pub(crate) nudge: bool,
    pub(crate) max_output: u32,
    pub(crate) allowance: Allowance,
    pub(crate) deadline: Instant,
    pub(crate) subject: Subject,
    pub(crate) trace_state: Option<Arc<str>>,
    pub(crate) admission: Option<Admission>,
    /// Where text goes while it arrives, if somebody may read along.
    pub(crate) live: Option<Arc<LiveText>>,
    pub(crate) mail: mpsc::Sender<Mail>,
}

impl ModelStep {
    /// # Cancel safety
    /// Dropping the future closes the connection; the conversation is lost with it and rebuilt from the transcript.
    pub(crate) async fn run(self) -> Done {
        let started = Instant::now();
        let pieces = self.live.map(|live| Pieces::new(self.step, live, self.mail));
        let call = self.chain.call(ModelCall {
            conversation: &self.rendered.conversation,
            tools: &self.tools,
            tool_choice: if self.last.is_some() { ToolChoice::None } else { ToolChoice::Auto },
            notice: self.last.map(notice),
            nudge: self.nudge,
            max_output: self.max_output,
            allowance: self.allowance,
            deadline: self.deadline,
            subject: self.subject,
            trace_state: self.trace_state.as_deref(),
            admission: self.admission,
            text: pieces.as_ref().map(|pieces| pieces as _),
        });
        let mut call = Box::pin(call);
        let outcome = match &pieces {
            Some(pieces) => flushing(&mut call, pieces).await,
            None => (&mut call).await,
        };
        drop(call);
        let answer = Answer::Model { step: self.step, outcome: Box::new(outcome), rendered: self.rendered };
        Done { answer, waited: (started, Instant::now()) }
    }
}

/// Runs a call to its end and sends on what text has gathered every now and then.
async fn flushing<T>(call: &mut (impl Future<Output = T> + Unpin), pieces: &Pieces) -> T {
    let mut tick = interval(PIECE_AGE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Ends with the call, which has a deadline of its own.
    loop {
        tokio::select! {
            biased;
            done = &mut *call => return done,
            _ = tick.tick() => pieces.flush(),
        }
    }
}

/// What a tool call needs, owned.
pub(crate) struct ToolStep {
    pub(crate) step: Step,
    pub(crate) executor: Arc<Executor>,
    pub(crate) tool: Arc<str>,
    pub(crate) arguments: Arc<str>,
    /// The key under which a write goes out, again and again if need be.
    pub(crate) key: String,
    pub(crate) allowance: Allowance,
    pub(crate) deadline: Instant,
    pub(crate) output_cap: usize,
    /// The id under which the model wants the result.
    pub(crate) call_id: Option<Arc<str>>,
    pub(crate) subject: Subject,
    pub(crate) trace_state: Option<Arc<str>>,
    pub(crate) mail: mpsc::Sender<Mail>,
    /// True if the call was sent before a crash: that fact is in the journal already.
    pub(crate) again: bool,
}

impl ToolStep {
    /// # Cancel safety
    /// Dropping the future drops the call: for reads only.
    pub(crate) async fn run(self) -> Done {
        let started = Instant::now();
        let leave = Leave { step: self.step, mail: self.mail, again: self.again };
        let run = ToolRun {
            tool: &self.tool,
            arguments: &self.arguments,
            key: Some(&self.key),
            allowance: self.allowance,
            deadline: self.deadline,
            output_cap: self.output_cap,
            call_id: self.call_id,
            subject: self.subject,
            trace_state: self.trace_state.as_deref(),
            before_send: &leave,
        };
        let outcome = self.executor.run(run).await;
        Done { answer: Answer::Tool { step: self.step, outcome }, waited: (started, Instant::now()) }
    }
}

/// Asks the session whether a call may leave.
struct Leave {
    step: Step,
    mail: mpsc::Sender<Mail>,
    again: bool,
}

impl BeforeSend for Leave {
    fn before_send(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if self.again {
                return true;
            }
            let (go, answer) = oneshot::channel();
            // A session that is gone answers nothing: the call must not leave then.
            self.mail.send(Mail::Dispatch { step: self.step, go }).await.is_ok() && answer.await.unwrap_or(false)
        })
    }
}
