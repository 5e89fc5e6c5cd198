//! Permits: taken at the door, held as long as an answer is read, and always given back.

use ambit_core::session::ModelFault;

use super::upstream::*;
use super::*;

fn one_permit(url: String) -> Kit {
    let mut build = Build::chat(vec![url]);
    build.target.bulkhead.permits = NonZeroU32::new(1).unwrap();
    build.target.bulkhead.queue = 0;
    build.kit()
}

#[tokio::test]
async fn a_permit_is_taken_at_the_door_and_moves_into_the_first_call() {
    let upstream = Upstream::answers(json(&completion("{\"content\":\"a\"}", "stop"))).await;
    let kit = one_permit(upstream.url());
    let deadline = Instant::now() + Duration::from_secs(30);
    let admission = kit.chain().admit(Subject::default(), deadline).await.unwrap();
    assert!(!kit.gateway.is_quiescent());
    let refusal = kit.chain().admit(Subject::default(), deadline).await.unwrap_err();
    assert_eq!((refusal.permits, refusal.in_use, refusal.queued), (1, 1, 0));
    assert!(refusal.to_string().contains("`primary` is full (1 of 1 running"), "{refusal}");
    assert!(refusal.retry_after >= Duration::from_secs(1));

    // Without it there is no way in; with it there is.
    let outcome = kit.chain().call(kit.call()).await;
    assert_eq!((outcome.attempts.len(), outcome.result.unwrap_err().fault), (0, ModelFault::Saturated));
    assert_eq!(upstream.requests().len(), 0, "nothing was sent until now");
    kit.run(ModelCall { admission: Some(admission), ..kit.call() }).await.result.unwrap();
    drop(kit.chain().admit(Subject::default(), deadline).await.unwrap());
    assert!(kit.gateway.is_quiescent(), "dropped at the door it is given back");
}

#[tokio::test]
async fn a_permit_covers_the_whole_body() {
    let mut acts = sse_open(&[&chunk("{\"content\":\"a\"}", None)]);
    acts.push(Act::Hang);
    let upstream = Upstream::answers(acts).await;
    let kit = one_permit(upstream.url());
    let call = kit.chain().call(kit.heard_call());
    let watched = async {
        upstream.arrived(1).await;
        // The text is on its way while the permit is out: look until it is here.
        while kit.heard.text().is_empty() {
            tokio::task::yield_now().await;
        }
        let state: Vec<_> = kit.gateway.pools().collect();
        assert_eq!((state[0].in_use, state[0].queued, state[0].permits), (1, 0, 1));
    };
    tokio::select! {
        outcome = call => panic!("it hangs for ever: {outcome:?}"),
        () = watched => {}
    }
    assert!(kit.gateway.is_quiescent(), "dropping the call gives the permit back");
    upstream.closed(1).await;
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection_wherever_it_is() {
    let mut begun = sse_open(&[": ping\n\n"]);
    begun.push(Act::Hang);
    let mut plain = vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec())];
    plain.push(Act::Hang);
    for acts in [vec![Act::Hang], begun, plain] {
        let upstream = Upstream::answers(acts).await;
        let kit = one_permit(upstream.url());
        tokio::select! {
            outcome = kit.chain().call(kit.heard_call()) => panic!("it hangs for ever: {outcome:?}"),
            () = upstream.arrived(1) => {}
        }
        upstream.closed(1).await;
        assert!(kit.gateway.is_quiescent());
        let cancelled = kit.signals.count(|signal| matches!(signal, Signal::AttemptFinished { code, .. } if &**code == "cancelled"));
        assert_eq!(cancelled, 1);
    }
}

#[test]
fn a_gateway_says_what_is_wrong_with_its_options() {
    let check = |change: &dyn Fn(&mut GatewayOptions), expected: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut options = GatewayOptions {
                targets: vec![Build::chat(vec!["http://127.0.0.1:1/v1".into()]).target],
                chains: vec![ChainOptions { name: "c".into(), targets: vec!["primary".into()] }],
                clock: WallClock::new(SystemTime::UNIX_EPOCH, Instant::now()),
                seed: 0,
                hold: HOLD_DEFAULT,
            };
            change(&mut options);
            let shown = match Gateway::new(options, Arc::new(ambit_core::signal::Silent)) {
                Ok(_) => "fine".to_owned(),
                Err(error) => format!("{error} {:?}", error.kind()),
            };
            assert!(shown.contains(expected), "{shown} lacks {expected}");
        });
    };
    fn chat(options: &mut GatewayOptions) -> &mut ProviderOptions {
        match &mut options.targets[0].dialect {
            DialectOptions::OpenAiChat(provider) | DialectOptions::OpenAiResponses(provider) | DialectOptions::Anthropic(provider) => {
                provider
            }
            DialectOptions::Scripted(_) => panic!("a provider"),
        }
    }
    check(&|_| {}, "fine");
    check(&|o| o.targets.push(o.targets[0].clone()), "target `primary` is named twice Invalid");
    check(&|o| o.chains.push(o.chains[0].clone()), "chain `c` is named twice");
    check(&|o| o.chains[0].targets = vec!["other".into()], "names target `other`, and there is none of that name; there are: primary");
    check(&|o| o.chains[0].targets.clear(), "chain `c` has 0 targets");
    check(&|o| o.chains[0].targets.push("primary".into()), "chain `c` has 2 targets");
    check(&|o| chat(o).base_urls.clear(), "target `primary`: `base_url` is empty");
    check(&|o| chat(o).base_urls = vec!["nowhere".into()], "`base_url` is no address");
    check(&|o| chat(o).api_key = Some("a\nb".into()), "`api_key` holds characters");
    check(&|o| chat(o).headers = vec![("a b".into(), "c".into())], "`headers` holds an invalid name for `a b`");
    check(&|o| chat(o).response = 0, "`response` is 0");
    check(
        &|o| o.targets[0].dialect = DialectOptions::Scripted(ScriptedOptions { source: "demo.toml".into(), text: "[defalt]".into() }),
        "target `primary`: demo.toml:1: unknown field `defalt`",
    );
}

#[tokio::test]
async fn a_successor_shares_the_permits_of_its_name() {
    let upstream = Upstream::answers(json(&completion("{\"content\":\"a\"}", "stop"))).await;
    let kit = one_permit(upstream.url());
    let deadline = Instant::now() + Duration::from_secs(30);
    let admission = kit.chain().admit(Subject::default(), deadline).await.unwrap();
    let successor = |permits: u32| {
        let mut build = Build::chat(vec![upstream.url()]);
        build.target.bulkhead.permits = NonZeroU32::new(permits).unwrap();
        kit.gateway.succeeded_by(build.options(), Arc::new(ambit_core::signal::Silent)).unwrap()
    };
    let next = successor(2);
    let chain = next.chain("default").unwrap();
    let refused = chain.admit(Subject::default(), deadline).await.unwrap_err();
    assert_eq!((refused.in_use, refused.permits), (1, 1), "the size changes once it is in force");
    next.enforce();
    let second = chain.admit(Subject::default(), deadline).await.unwrap();
    assert!(chain.admit(Subject::default(), deadline).await.is_err(), "both permits are out, wherever they were taken");
    drop((admission, second));
    assert!(kit.gateway.is_quiescent() && next.is_quiescent());
    // One that is given up changes nothing.
    drop(successor(7));
    assert_eq!(next.pools().next().unwrap().permits, 2);
}
