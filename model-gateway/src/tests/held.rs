//! When text is passed on, to the millisecond: the scripted dialect on paused time.

use super::*;

/// Ten characters a piece, one piece each 300 ms, the first after 500 ms.
const SCRIPT: &str = r#"
[pace]
first = "500ms"
piece = "300ms"
chars = 10

[[rule]]
contains = "look"
reply = "0123456789abcdefghij"
calls = [{ tool = "look" }]

[default]
reply = "0123456789abcdefghijABCDEFGHIJ0123456789abcdefghijABCDEFGHIJ"
"#;

/// Milliseconds at which pieces were passed on, and how many characters each had.
fn times(kit: &Kit, since: Instant) -> Vec<(u128, usize)> {
    kit.heard.0.lock().unwrap().iter().map(|(piece, at)| ((*at - since).as_millis(), piece.len())).collect()
}

#[tokio::test(start_paused = true)]
async fn text_that_may_turn_into_a_call_is_held_for_a_second() {
    let kit = Build::script(SCRIPT).kit().with_tools();
    let since = Instant::now();
    let outcome = kit.run(kit.heard_call()).await;
    // The first piece came at 500 ms; at 1,700 ms it is the fifth, and a second has passed.
    assert_eq!(times(&kit, since), [(1_700, 50), (2_000, 10)]);
    let turn = outcome.result.unwrap();
    assert_eq!((turn.text.unwrap().len(), turn.output_tokens, since.elapsed().as_millis()), (60, 15, 2_000));
    assert_eq!(outcome.attempts[0].ms, 2_000);
    let first_tokens = kit
        .signals
        .count(|signal| matches!(signal, Signal::AttemptFinished { first_token: Some(after), .. } if *after == Duration::from_millis(500)));
    assert_eq!(first_tokens, 1);
}

#[tokio::test(start_paused = true)]
async fn text_that_cannot_turn_into_a_call_is_passed_on_at_once() {
    let expected = [(500, 10), (800, 10), (1_100, 10), (1_400, 10), (1_700, 10), (2_000, 10)];
    let kit = Build::script(SCRIPT).kit();
    let since = Instant::now();
    kit.run(kit.heard_call()).await.result.unwrap();
    assert_eq!(times(&kit, since), expected, "no tools");

    let kit = Build::script(SCRIPT).kit().with_tools();
    let since = Instant::now();
    kit.run(ModelCall { tool_choice: ToolChoice::None, ..kit.heard_call() }).await.result.unwrap();
    assert_eq!(times(&kit, since), expected, "tools switched off");
}

#[tokio::test(start_paused = true)]
async fn a_short_answer_is_passed_on_at_its_end_and_words_before_a_call_never() {
    let kit = Build::script("[pace]\nfirst = \"500ms\"\n[default]\nreply = \"short\"").kit().with_tools();
    let since = Instant::now();
    kit.run(kit.heard_call()).await.result.unwrap();
    assert_eq!(times(&kit, since), [(500, 5)]);

    let mut kit = Build::script(SCRIPT).kit().with_tools();
    kit.conversation.push_user("look");
    let turn = kit.run(kit.heard_call()).await.result.unwrap();
    assert_eq!((turn.text.as_deref(), &*turn.calls[0].name, kit.heard.text().as_str()), (Some("0123456789abcdefghij"), "look", ""));
}

#[tokio::test(start_paused = true)]
async fn the_script_stops_where_the_output_is_bounded() {
    let kit = Build::script(SCRIPT).kit();
    let turn = kit.run(ModelCall { max_output: 14, ..kit.call() }).await.result.unwrap();
    assert_eq!((turn.text.unwrap().len(), turn.finish, turn.output_tokens), (56, FinishReason::Length, 14));
    let turn = kit.run(ModelCall { max_output: 15, ..kit.call() }).await.result.unwrap();
    assert_eq!((turn.text.unwrap().len(), turn.finish), (60, FinishReason::Stop));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_middle_keeps_what_was_passed_on() {
    let kit = Build::script(SCRIPT).kit();
    let mut call = kit.heard_call();
    call.deadline = Instant::now() + Duration::from_millis(1_000 + 150);
    let outcome = kit.run(call).await;
    let failure = outcome.result.unwrap_err();
    assert_eq!((failure.fault, failure.partial.as_deref()), (ambit_core::session::ModelFault::Deadline, Some("0123456789abcdefghij")));
    assert_eq!((outcome.attempts[0].ms, outcome.attempts[0].at_least), (1_000, true));
}

#[tokio::test(start_paused = true)]
async fn too_little_time_sends_nothing() {
    let kit = Build::script(SCRIPT).kit();
    let mut call = kit.call();
    call.deadline = Instant::now() + Duration::from_millis(249);
    let outcome = kit.run(call).await;
    assert_eq!((outcome.attempts.len(), outcome.result.unwrap_err().fault), (0, ambit_core::session::ModelFault::Deadline));
}
