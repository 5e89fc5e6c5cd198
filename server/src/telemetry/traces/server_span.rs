//! The span of one HTTP request: from its head to the last byte of its answer, or until its caller is gone.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use ambit_core::trace::SpanId;
use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;

use crate::telemetry::traces::spans::{Made, Spans};
use crate::telemetry::traces::{Place, now};

/// Ends its span when it is dropped.
pub(crate) struct ServerSpan {
    spans: Arc<Spans>,
    place: Place,
    began: SystemTime,
    method: String,
    route: String,
    status: Option<u16>,
}

impl ServerSpan {
    pub(super) fn begin(spans: Arc<Spans>, place: Place, method: &str, route: &str) -> Self {
        Self { spans, place, began: now(), method: method.to_owned(), route: route.to_owned(), status: None }
    }

    /// The head of the answer is there; the span ends with its body.
    pub(crate) fn answered(mut self, status: u16, body: Body) -> Body {
        self.status = Some(status);
        Body::new(Watched { body, _span: self })
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        let (method, route) = (std::mem::take(&mut self.method), std::mem::take(&mut self.route));
        let name = format!("{method} {route}");
        let mut attributes =
            vec![KeyValue::new("http.request.method", method), KeyValue::new("http.route", route), KeyValue::new("url.scheme", "http")];
        let error: Option<Cow<'static, str>> = match self.status {
            Some(status) if status >= 500 => Some(status.to_string().into()),
            Some(_) => None,
            // The caller left before there was an answer.
            None => Some("disconnected".into()),
        };
        if let Some(status) = self.status {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        let own = self.place.trace.parent.unwrap_or(SpanId::LAST);
        self.spans.end(Made {
            own,
            above: self.place.caller,
            above_is_remote: true,
            kind: SpanKind::Server,
            name: name.into(),
            began: self.began,
            attributes,
            error,
            ..Made::of(self.place.trace)
        });
    }
}

/// A body that keeps its request's span open.
struct Watched {
    body: Body,
    _span: ServerSpan,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        http_body::Body::poll_frame(Pin::new(&mut self.body), cx)
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}
