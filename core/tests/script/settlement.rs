//! The settlement: writes awaited, reconciled, undone, or left to a person.

use ambit_core::Step;
use ambit_core::session::{EffectState, Event, Finding, Heard};

use super::{check, lent, states};
use crate::kit::play;

#[test]
fn the_verdict_comes_at_once_and_writes_that_were_sent_are_awaited_after_it() {
    check("model:w sent cancel:caller", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | pending");
    check("model:w sent cancel:caller tool", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | settled");
    check("model:w sent cancel:caller tool:tool_error", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | settled");
    check(
        "model:w sent cancel:caller tool:outcome_unknown",
        "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "model:w1,w2 sent sent cancel:caller tool ~cancel:caller tool",
        "CallModel CallTool(w1) CallTool(w2) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN OUTCOME_UNKNOWN | settled",
    );
    assert_eq!(states(&play("model:w1,w2 sent sent tool cancel:caller tool:saturated")), [EffectState::Done, EffectState::Absent]);
}

#[test]
fn what_nobody_knows_is_asked_of_the_downstream_and_else_left_to_a_person() {
    let until = "CallModel CallTool(q) CallModel Finish(completed, answered) Reconcile(q) | OUTCOME_UNKNOWN";
    check("model:q sent tool:outcome_unknown answer found", &format!("{until} | settled"));
    check("model:q sent tool:outcome_unknown answer absent", &format!("{until} | settled"));
    check("model:q sent tool:outcome_unknown answer unknown", &format!("{until} | needs_attention"));
    check("model:q sent tool:outcome_unknown answer", &format!("{until} | pending"));
    check(
        "model:q1,q2 sent sent tool:outcome_unknown cancel:caller found tool:outcome_unknown absent",
        "CallModel CallTool(q1) CallTool(q2) Finish(cancelled, cancelled) Reconcile(q1) Reconcile(q2) | OUTCOME_UNKNOWN OUTCOME_UNKNOWN | settled",
    );
    assert_eq!(states(&play("model:w sent tool:outcome_unknown answer")), [EffectState::Attention]);
}

#[test]
fn a_saga_undoes_the_latest_turn_first_and_the_writes_of_one_turn_together() {
    let forward = "CallModel CallTool(c1) CallModel CallTool(c2) CallTool(c3) CallModel Abandon Finish(cancelled, cancelled)";
    let script = "saga=failed,cancelled model:c1 sent tool model:c2,c3 sent sent tool tool cancel:caller";
    check(script, &format!("{forward} Compensate(c3) Compensate(c2) | OK OK OK | pending"));
    check(&format!("{script} undone"), &format!("{forward} Compensate(c3) Compensate(c2)"));
    check(&format!("{script} undone undone"), &format!("{forward} Compensate(c3) Compensate(c2) Compensate(c1)"));
    check(
        &format!("{script} undone undone undone"),
        &format!("{forward} Compensate(c3) Compensate(c2) Compensate(c1) | OK OK OK | settled"),
    );
    check(
        &format!("{script} stuck undone undone"),
        &format!("{forward} Compensate(c3) Compensate(c2) Compensate(c1) | OK OK OK | needs_attention"),
    );
    check("saga=cancelled model:c sent tool answer", "CallModel CallTool(c) CallModel Finish(completed, answered) | OK | settled");
    check("model:c sent tool cancel:caller", "CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) | OK | settled");
    check(
        "saga=failed model:c sent tool fail:rejected undone",
        "CallModel CallTool(c) CallModel Finish(failed, model_rejected) Compensate(c) | OK | settled",
    );
    check(
        "saga=incomplete model:c sent tool cut undone",
        "CallModel CallTool(c) CallModel Finish(incomplete, output_truncated) Compensate(c) | OK | settled",
    );
}

#[test]
fn nothing_is_undone_before_every_outcome_is_known() {
    let forward = "CallModel CallTool(c1) CallTool(c2) Finish(cancelled, cancelled)";
    check("saga=cancelled model:c1,c2 sent sent tool cancel:caller", &format!("{forward} | OK OUTCOME_UNKNOWN | pending"));
    check("saga=cancelled model:c1,c2 sent sent tool cancel:caller tool", &format!("{forward} Compensate(c2) Compensate(c1)"));
    check(
        "saga=cancelled model:c1,c2 sent sent tool cancel:caller tool:saturated undone",
        &format!("{forward} Compensate(c1) | OK OUTCOME_UNKNOWN | settled"),
    );
    let unknown = "CallModel CallTool(m) CallModel Abandon Finish(cancelled, cancelled) Reconcile(m)";
    check(
        "saga=cancelled model:m sent tool:outcome_unknown cancel:caller found undone",
        &format!("{unknown} Compensate(m) | OUTCOME_UNKNOWN | settled"),
    );
    check("saga=cancelled model:m sent tool:outcome_unknown cancel:caller absent", &format!("{unknown} | OUTCOME_UNKNOWN | settled"));
    check(
        "saga=cancelled model:m sent tool:outcome_unknown cancel:caller unknown",
        &format!("{unknown} | OUTCOME_UNKNOWN | needs_attention"),
    );
    check(
        "saga=cancelled model:b sent tool:outcome_unknown cancel:caller undone",
        "CallModel CallTool(b) CallModel Abandon Finish(cancelled, cancelled) Compensate(b) | OUTCOME_UNKNOWN | settled",
    );
    check(
        "model:b sent tool:outcome_unknown cancel:caller",
        "CallModel CallTool(b) CallModel Abandon Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention",
    );
}

#[test]
fn a_group_that_is_complete_is_left_alone() {
    check(
        "saga=cancelled group=c1,c2 model:c1,c2 tools cancel:caller",
        "CallModel CallTool(c1) CallTool(c2) CallModel Abandon Finish(cancelled, cancelled) | OK OK | settled",
    );
    check(
        "saga=cancelled group=c1,c2 model:c1 tools cancel:caller undone",
        "CallModel CallTool(c1) CallModel Abandon Finish(cancelled, cancelled) Compensate(c1) | OK | settled",
    );
    check(
        "saga=cancelled group=c1,c2 model:c1,c2,c3 tools cancel:caller undone",
        "CallModel CallTool(c1) CallTool(c2) CallTool(c3) CallModel Abandon Finish(cancelled, cancelled) Compensate(c3) | OK OK OK | settled",
    );
    // Decided once: undoing the one half does not make the other half look complete.
    check(
        "saga=cancelled group=c1,b1 model:c1 tools model:b1 sent tool:outcome_unknown cancel:caller undone undone",
        "CallModel CallTool(c1) CallModel CallTool(b1) CallModel Abandon Finish(cancelled, cancelled) Compensate(b1) Compensate(c1) | OK OUTCOME_UNKNOWN | settled",
    );
}

#[test]
fn what_an_irreversible_effect_seals_is_not_undone() {
    let forward = "CallModel CallTool(c) CallModel CallTool(i) CallModel Abandon Finish(cancelled, cancelled)";
    check("saga=cancelled model:c tools model:i tools cancel:caller", &format!("{forward} | OK OK | settled"));
    check(
        "saga=cancelled model:c tools model:i sent tool:outcome_unknown cancel:caller",
        &format!("{forward} | OK OUTCOME_UNKNOWN | needs_attention"),
    );
    check(
        "saga=cancelled model:c tools model:i sent tool:tool_error cancel:caller undone",
        &format!("{forward} Compensate(c) | OK TOOL_ERROR | settled"),
    );
    check(
        "saga=cancelled model:i tools model:c tools cancel:caller undone",
        "CallModel CallTool(i) CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) Compensate(c) | OK OK | settled",
    );
    // Also where its answer never came.
    check(
        "saga=cancelled model:c tools model:i sent cancel:caller crash",
        "CallModel CallTool(c) CallModel CallTool(i) Finish(cancelled, cancelled) | OK OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "saga=cancelled model:c tools model:i sent cancel:caller wait:120",
        "CallModel CallTool(c) CallModel CallTool(i) Finish(cancelled, cancelled) | OK OUTCOME_UNKNOWN | needs_attention",
    );
}

#[test]
fn what_cannot_be_undone_is_a_persons_and_never_a_success() {
    check(
        "saga=cancelled model:w tools cancel:caller",
        "CallModel CallTool(w) CallModel Abandon Finish(cancelled, cancelled) | OK | needs_attention",
    );
    check(
        "saga=cancelled model:c,w tools cancel:caller undone",
        "CallModel CallTool(c) CallTool(w) CallModel Abandon Finish(cancelled, cancelled) Compensate(c) | OK OK | needs_attention",
    );
    check(
        "saga=cancelled model:c1 tools model:c2 tools cancel:caller stuck undone",
        "CallModel CallTool(c1) CallModel CallTool(c2) CallModel Abandon Finish(cancelled, cancelled) Compensate(c2) Compensate(c1) | OK OK | needs_attention",
    );
}

#[test]
fn a_settlement_has_deadlines_of_its_own() {
    check("model:w sent cancel:caller wait:119", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | pending");
    check(
        "model:w sent cancel:caller wait:120 ~tool",
        "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "model:q sent tool:outcome_unknown answer wait:120 ~found",
        "CallModel CallTool(q) CallModel Finish(completed, answered) Reconcile(q) | OUTCOME_UNKNOWN | needs_attention",
    );
    let forward = "CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) Compensate(c)";
    check("saga=cancelled model:c tools cancel:caller wait:9", &format!("{forward} | OK | pending"));
    check("saga=cancelled model:c tools cancel:caller wait:10 ~undone", &format!("{forward} | OK | needs_attention"));
    // Time for two: the second is begun with what the first has left, and none is begun after it.
    let two = "CallModel CallTool(c1) CallModel CallTool(c2) CallModel Abandon Finish(cancelled, cancelled) Compensate(c2)";
    check(
        "saga=cancelled model:c1 tools model:c2 tools cancel:caller late:19 undone undone",
        &format!("{two} Compensate(c1) | OK OK | settled"),
    );
    check("saga=cancelled model:c1 tools model:c2 tools cancel:caller wait:20", &format!("{two} | OK OK | needs_attention"));
    lent("saga=cancelled model:c1 tools model:c2 tools cancel:caller late:19 undone", "a=5 t=0 c=0 d=20000");
    // What answered in time is undone also where something else never answered.
    check(
        "saga=cancelled model:c1,c2 sent sent tool cancel:caller wait:120 undone",
        "CallModel CallTool(c1) CallTool(c2) Finish(cancelled, cancelled) Compensate(c1) | OK OUTCOME_UNKNOWN | needs_attention",
    );
}

#[test]
fn a_settlement_goes_on_after_a_crash() {
    check(
        "model:q sent cancel:caller crash found",
        "CallModel CallTool(q) Finish(cancelled, cancelled) Reconcile(q) | OUTCOME_UNKNOWN | settled",
    );
    check("model:w sent cancel:caller crash", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention");
    check(
        "model:q sent tool:outcome_unknown answer crash found",
        "CallModel CallTool(q) CallModel Finish(completed, answered) Reconcile(q) Reconcile(q) | OUTCOME_UNKNOWN | settled",
    );
    check(
        "saga=cancelled model:c tools cancel:caller crash undone",
        "CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) Compensate(c) Compensate(c) | OK | settled",
    );
    check(
        "saga=cancelled model:d tools cancel:caller crash",
        "CallModel CallTool(d) CallModel Abandon Finish(cancelled, cancelled) Compensate(d) | OK | needs_attention",
    );
}

#[test]
fn an_answer_to_another_question_settles_nothing() {
    let reconciling = play("model:q sent tool:outcome_unknown answer").driver;
    let step = Step(4);
    assert_eq!({ reconciling.machine.clone() }.handle(Event::Compensated { step, undone: true }, 0).0, Heard::Late);
    assert_eq!({ reconciling.machine.clone() }.handle(Event::Reconciled { step, finding: Finding::Found }, 0).0, Heard::Applied);
    let compensating = play("saga=cancelled model:c tools cancel:caller").driver;
    assert_eq!({ compensating.machine.clone() }.handle(Event::Reconciled { step, finding: Finding::Found }, 0).0, Heard::Late);
    assert_eq!({ compensating.machine.clone() }.handle(Event::Compensated { step: Step(9), undone: true }, 0).0, Heard::Invalid);
}
