//! What a session asks its driver to do: one step each.

use std::fmt;
use std::sync::Arc;

use crate::attempt::Allowance;
use crate::id::{Body, Step};
use crate::verdict::{Reason, Verdict};

/// One step that a driver is asked to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Look for passages that fit the input.
    Retrieve {
        /// Its step.
        step: Step,
        /// What it may use.
        allowance: Allowance,
    },
    /// Ask the model for a turn over the transcript as it stands.
    CallModel {
        /// Its step.
        step: Step,
        /// What it may use.
        allowance: Allowance,
        /// Most tokens to ask for.
        max_output: u32,
        /// Set if this is the last call: tools are switched off, and the model is told why.
        last: Option<Reason>,
        /// True if the model answered nothing before and is asked to say something.
        nudge: bool,
    },
    /// Run a call of the current turn.
    CallTool {
        /// Its step; together with the session's id the key of an unkeyed write.
        step: Step,
        /// What it may use.
        allowance: Allowance,
        /// Which tool.
        tool: Arc<str>,
        /// With which arguments.
        arguments: Body,
        /// True if it was sent before a crash: the same key goes out again.
        again: bool,
    },
    /// Ask a person about a call; the session's clock stops until the answer.
    AskApproval {
        /// Its step.
        step: Step,
        /// Which tool.
        tool: Arc<str>,
        /// With which arguments; these very ones run after a yes.
        arguments: Body,
    },
    /// Drop a running read or model call; its answer will not be heard.
    Abandon {
        /// The step to drop.
        step: Step,
    },
    /// Ask the downstream whether a call took effect.
    Reconcile {
        /// Its step.
        step: Step,
        /// The call in question.
        of: Step,
        /// What it may use.
        allowance: Allowance,
    },
    /// Undo a call.
    Compensate {
        /// Its step.
        step: Step,
        /// The call to undo.
        of: Step,
        /// What it may use.
        allowance: Allowance,
    },
    /// The verdict stands: the answer may leave.
    Finish(Verdict),
}

impl Command {
    /// Its name in tables and in what a person reads.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retrieve { .. } => "Retrieve",
            Self::CallModel { .. } => "CallModel",
            Self::CallTool { .. } => "CallTool",
            Self::AskApproval { .. } => "AskApproval",
            Self::Abandon { .. } => "Abandon",
            Self::Reconcile { .. } => "Reconcile",
            Self::Compensate { .. } => "Compensate",
            Self::Finish(_) => "Finish",
        }
    }
}

/// One line a command, stable across versions of Rust: what fingerprints and golden journals are made of.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retrieve { step, allowance } => write!(f, "Retrieve {step} {}", Lent(allowance)),
            Self::CallModel { step, allowance, max_output, last, nudge } => {
                write!(f, "CallModel {step} {} output={max_output}", Lent(allowance))?;
                if let Some(reason) = last {
                    write!(f, " last={reason}")?;
                }
                if *nudge {
                    write!(f, " nudge")?;
                }
                Ok(())
            }
            Self::CallTool { step, allowance, tool, arguments, again } => {
                write!(f, "CallTool {step} {} {tool} {}", Lent(allowance), arguments.digest)?;
                if *again {
                    write!(f, " again")?;
                }
                Ok(())
            }
            Self::AskApproval { step, tool, arguments } => write!(f, "AskApproval {step} {tool} {}", arguments.digest),
            Self::Abandon { step } => write!(f, "Abandon {step}"),
            Self::Reconcile { step, of, allowance } => write!(f, "Reconcile {step} of={of} {}", Lent(allowance)),
            Self::Compensate { step, of, allowance } => write!(f, "Compensate {step} of={of} {}", Lent(allowance)),
            Self::Finish(verdict) => write!(f, "Finish {} {}", verdict.status, verdict.reason),
        }
    }
}

/// An allowance in a few characters.
struct Lent<'a>(&'a Allowance);

impl fmt::Display for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allowance { attempts, tokens, cost, deadline } = self.0;
        write!(f, "[a={attempts} t={tokens} c={} d={deadline}]", cost.0)
    }
}

/// Fingerprints the commands that one event caused (FNV-1a, 64 bits): a replay that disagrees is found out.
#[must_use]
pub fn fingerprint(commands: &[Command]) -> u64 {
    use fmt::Write as _;
    struct Fnv(u64);
    impl fmt::Write for Fnv {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for command in commands {
        // Writing into a hash cannot fail.
        let _ = writeln!(hash, "{command}");
    }
    hash.0
}
