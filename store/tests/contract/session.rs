//! Rows: written with the journal, read and listed without it.

use std::num::NonZeroU32;

use ambit_store::{Need, NewSession, Order, PAGE_MAX, Page, RowUpdate, SessionRow, Store, TextFate};

use crate::kit::{Kit, START_MS, create, id, new_session, row};

fn page(order: Order) -> Page {
    Page { after: None, limit: NonZeroU32::new(2).unwrap(), order, status: None, agent: None, tenant: None }
}

#[tokio::test]
async fn a_row_tells_all_that_its_owner_wrote() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let begun = NewSession { previous: Some(id(7)), metadata: "{\"k\":\"it's \\\"v\\\"\"}".to_owned(), ..new_session(1) };
    let lease = store.create(begun, Need::Applied).await.unwrap();
    let expected = SessionRow {
        id: id(1),
        agent: "ops".to_owned(),
        tenant: "acme".to_owned(),
        principal: "ann".to_owned(),
        previous: Some(id(7)),
        status: "running".to_owned(),
        reason: None,
        settlement: None,
        created_ms: START_MS,
        deadline_ms: START_MS + 45_000,
        verdict_ms: None,
        closed_ms: None,
        metadata: "{\"k\":\"it's \\\"v\\\"\"}".to_owned(),
        summary: None,
        owner: Some("a".to_owned()),
        epoch: 1,
        lease_until_ms: Some(START_MS + 10_000),
        last_seq: 1,
        texts: TextFate::Kept,
        deleted_ms: None,
    };
    assert_eq!(store.session(id(1)).await.unwrap().unwrap(), expected);

    let update = RowUpdate {
        status: Some("completed"),
        reason: Some("answered"),
        settlement: Some("none"),
        deadline_ms: Some(START_MS + 50_000),
        verdict_ms: Some(START_MS + 1),
        closed_ms: Some(START_MS + 2),
        summary: Some("{\"spent\":1}".to_owned()),
        release: true,
        key: None,
    };
    store.append(&lease, row(update), Need::Applied).await.unwrap();
    let expected = SessionRow {
        status: "completed".to_owned(),
        reason: Some("answered".to_owned()),
        settlement: Some("none".to_owned()),
        deadline_ms: START_MS + 50_000,
        verdict_ms: Some(START_MS + 1),
        closed_ms: Some(START_MS + 2),
        summary: Some("{\"spent\":1}".to_owned()),
        owner: None,
        lease_until_ms: None,
        ..expected
    };
    assert_eq!(store.session(id(1)).await.unwrap().unwrap(), expected);
    assert_eq!(store.session(id(2)).await.unwrap(), None);
}

#[tokio::test]
async fn sessions_are_listed_in_pages_in_both_orders() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    for n in 1..=5 {
        create(&store, n).await;
    }
    let check = async |order, after: Option<u64>, expected: &[u64], more| {
        let listing = store.sessions(Page { after: after.map(id), ..page(order) }).await.unwrap();
        let ids: Vec<_> = listing.rows.iter().map(|row| row.id).collect();
        assert_eq!((ids, listing.has_more), (expected.iter().map(|n| id(*n)).collect(), more), "{order:?} {after:?}");
    };
    check(Order::NewestFirst, None, &[5, 4], true).await;
    check(Order::NewestFirst, Some(4), &[3, 2], true).await;
    check(Order::NewestFirst, Some(3), &[2, 1], false).await;
    check(Order::NewestFirst, Some(1), &[], false).await;
    check(Order::OldestFirst, None, &[1, 2], true).await;
    check(Order::OldestFirst, Some(3), &[4, 5], false).await;
    check(Order::OldestFirst, Some(5), &[], false).await;
}

#[tokio::test]
async fn a_page_has_a_largest_size() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    for n in 0..=u64::from(PAGE_MAX) {
        create(&store, n).await;
    }
    let listing = store.sessions(Page { limit: NonZeroU32::MAX, ..page(Order::OldestFirst) }).await.unwrap();
    assert_eq!((listing.rows.len(), listing.has_more), (PAGE_MAX as usize, true));
}

#[tokio::test]
async fn sessions_are_listed_by_status_agent_and_tenant() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let make = async |n, agent: &str, tenant: &str, status| {
        let begun = NewSession { agent: agent.into(), tenant: tenant.into(), status, ..new_session(n) };
        store.create(begun, Need::Applied).await.unwrap();
    };
    make(1, "ops", "acme", "running").await;
    make(2, "ops", "umbrella", "running").await;
    make(3, "help", "acme", "queued").await;
    make(4, "ops", "acme", "queued").await;
    let check = async |status: Option<&str>, agent: Option<&str>, tenant: Option<&str>, expected: &[u64]| {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let page = Page { limit: NonZeroU32::MAX, status: own(status), agent: own(agent), tenant: own(tenant), ..page(Order::OldestFirst) };
        assert_eq!(ids(&store, page).await, expected, "{status:?} {agent:?} {tenant:?}");
    };
    check(None, None, None, &[1, 2, 3, 4]).await;
    check(Some("queued"), None, None, &[3, 4]).await;
    check(None, Some("ops"), None, &[1, 2, 4]).await;
    check(None, None, Some("acme"), &[1, 3, 4]).await;
    check(Some("running"), Some("ops"), Some("acme"), &[1]).await;
    check(Some("completed"), None, None, &[]).await;
}

async fn ids(store: &Store, page: Page) -> Vec<u64> {
    let rows = store.sessions(page).await.unwrap().rows;
    rows.iter().map(|row| row.id.ulid().parse().unwrap()).collect()
}
