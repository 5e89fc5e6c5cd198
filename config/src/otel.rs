//! The standard variables of OpenTelemetry: where traces go, and which.
//!
//! They are read by their standard names and not as settings, since whoever runs a fleet sets them once for everything.
//! **Invariant:** nothing is exported unless an endpoint is named; what is named for traces and cannot be done is a problem,
//! and what others of a fleet may make of their metrics, their logs and their TLS a notice: never ignored. Headers alone are read once more by the exporter, under the same names; here their form is checked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Problem;
use crate::node::Place;

/// Most spans that wait for their export: about 64 MiB.
pub const TRACE_QUEUE_MAX: u64 = 65_536;
/// Longest time between two exports, and for one of them, milliseconds.
pub const TRACE_EXPORT_MS_MAX: u64 = 600_000;

const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const ENDPOINT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const TIMEOUT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const COMPRESSION: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
/// Files of a private authority: the system's list of authorities is used.
const FILES: [&str; 6] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
];
/// Exporters of other signals, of which there are none, and where those signals are found.
const OTHERS: [(&str, &str); 2] = [
    ("OTEL_METRICS_EXPORTER", "metrics are exported nowhere, `/metrics` shows them"),
    ("OTEL_LOGS_EXPORTER", "logs are exported nowhere, they are lines on standard error"),
];
/// Whether TLS is left out for an endpoint without a scheme; ours has one.
const INSECURE: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const PROPAGATORS: &str = "OTEL_PROPAGATORS";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const QUEUE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
const BATCH: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
const DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";
const EXPORT_TIMEOUT: &str = "OTEL_BSP_EXPORT_TIMEOUT";

/// Where traces go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceExport {
    /// How they are sent.
    pub protocol: OtlpProtocol,
    /// Where to: the whole address for HTTP, scheme, host and port for gRPC.
    pub endpoint: String,
    /// Longest time of one export.
    pub timeout: Duration,
    /// Which traces.
    pub sampler: TraceSampler,
    /// What all spans say about this process; holds `service.name`.
    pub resource: BTreeMap<String, String>,
    /// Most spans that wait for their export; more are dropped and counted.
    pub queue: usize,
    /// Most spans of one export.
    pub batch: usize,
    /// Time between two exports.
    pub delay: Duration,
}

/// How OTLP is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP.
    Http,
    /// gRPC.
    Grpc,
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceSampler {
    /// True if the caller's own decision goes first.
    pub parent_based: bool,
    /// Share of the traces that nobody has decided about, from 0 to 1.
    pub ratio: f64,
}

/// The variables, and what is wrong with them.
struct Reader<'a> {
    env: &'a BTreeMap<String, String>,
    problems: &'a mut Vec<Problem>,
}

/// Where traces go; `None` if nowhere. What should be said once at start goes into `notices`.
pub(crate) fn traces(env: &BTreeMap<String, String>, notices: &mut Vec<String>, problems: &mut Vec<Problem>) -> Option<TraceExport> {
    let mut reader = Reader { env, problems };
    // Anything but `true` means that it is on: the specification's rule for flags.
    if reader.get(DISABLED).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    notices.extend(reader.without_effect());
    let exporter = reader.get(EXPORTER).map(|(_, value)| value);
    match exporter {
        None | Some("otlp") => {}
        Some("none") => return None,
        Some(other) => {
            reader.wrong(EXPORTER, other, "no exporter of ours", "`otlp` or `none`");
            return None;
        }
    }
    if reader.first(&ENDPOINT).is_none() {
        if exporter.is_some() {
            notices.push(format!("{EXPORTER} is otlp, but {} is not set: no traces are exported", ENDPOINT[1]));
        }
        return None;
    }
    reader.export()
}

impl<'a> Reader<'a> {
    /// A variable that says something; an empty one says nothing.
    fn get<'n>(&self, name: &'n str) -> Option<(&'n str, &'a str)> {
        self.env.get(name).map(|value| (name, value.trim())).filter(|(_, value)| !value.is_empty())
    }

    /// The first of these that says something.
    fn first<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &'a str)> {
        names.iter().find_map(|name| self.get(name))
    }

    /// What is said about variables that change nothing here.
    fn without_effect(&self) -> Vec<String> {
        let others = OTHERS.iter().filter_map(|(name, instead)| Some((self.get(name)?, *instead)));
        let others = others.filter(|((_, value), _)| *value != "none");
        let insecure = INSECURE.iter().filter_map(|name| Some((self.get(name)?, "the scheme of the endpoint decides about TLS")));
        others.chain(insecure).map(|((name, value), instead)| format!("{name} is {value:?}, which has no effect: {instead}")).collect()
    }

    fn wrong(&mut self, name: &str, value: &str, reason: &str, hint: &str) {
        self.problems.push(Problem::new(Some(Place::Variable(name.into())), "", format!("`{value}` is {reason}")).hint(hint));
    }

    fn export(&mut self) -> Option<TraceExport> {
        let protocol = self.protocol();
        let endpoint = self.endpoint(protocol);
        self.headers();
        self.unsupported();
        let queue = self.number(&[QUEUE], 2_048, 1, TRACE_QUEUE_MAX);
        let batch = self.number(&[BATCH], 512.min(queue), 1, queue);
        let timeout = self.number(&TIMEOUT, 10_000, 1, TRACE_EXPORT_MS_MAX);
        // An export may take as long as the exporter's timeout says; this one may cut it shorter.
        let export = self.number(&[EXPORT_TIMEOUT], 30_000, 1, TRACE_EXPORT_MS_MAX);
        let delay = self.number(&[DELAY], 5_000, 1, TRACE_EXPORT_MS_MAX);
        let (sampler, resource) = (self.sampler(), self.resource());
        // Only now, so that everything that is wrong is said at once.
        Some(TraceExport {
            protocol,
            endpoint: endpoint?,
            timeout: Duration::from_millis(timeout.min(export)),
            sampler,
            resource,
            queue: usize::try_from(queue).unwrap_or(usize::MAX),
            batch: usize::try_from(batch).unwrap_or(usize::MAX),
            delay: Duration::from_millis(delay),
        })
    }

    fn protocol(&mut self) -> OtlpProtocol {
        match self.first(&PROTOCOL) {
            None | Some((_, "http/protobuf")) => OtlpProtocol::Http,
            Some((_, "grpc")) => OtlpProtocol::Grpc,
            Some((name, other)) => {
                self.wrong(name, other, "no protocol of ours", "`http/protobuf` or `grpc`");
                OtlpProtocol::Http
            }
        }
    }

    /// The endpoint of traces as it stands; the one of all signals with the path of traces, where HTTP is spoken.
    fn endpoint(&mut self, protocol: OtlpProtocol) -> Option<String> {
        let (name, value) = self.first(&ENDPOINT)?;
        // Before anything else, and wherever it stands: what is shown of an address must not hold a password.
        if value.contains('@') {
            let problem = Problem::new(Some(Place::Variable(name.into())), "", "holds credentials, or an `@` that is no part of any");
            self.problems.push(problem.hint(format!("send credentials as a header: {}; any other `@` is written `%40`", HEADERS[1])));
            return None;
        }
        let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://")).unwrap_or_default();
        if host.is_empty() || host.starts_with(['/', '?', '#']) || value.contains(char::is_whitespace) {
            self.wrong(name, value, "no http or https address", "like `http://localhost:4318`, or port 4317 for grpc");
            return None;
        }
        match protocol {
            OtlpProtocol::Grpc => Some(value.trim_end_matches('/').to_owned()),
            OtlpProtocol::Http if name == ENDPOINT[0] => Some(value.to_owned()),
            OtlpProtocol::Http => Some(format!("{}/v1/traces", value.trim_end_matches('/'))),
        }
    }

    /// The form of `key=value,key=value`; the values are secrets and are not shown.
    fn headers(&mut self) {
        let Some((name, value)) = self.first(&HEADERS) else { return };
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        let fine = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| is_name(name.trim()));
        if !value.split_terminator(',').all(fine) || !value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            let problem = Problem::new(Some(Place::Variable(name.into())), "", "is no list of headers");
            self.problems.push(problem.hint("like `api-key=secret,tenant=ours`, values percent-encoded"));
        }
    }

    /// What would change what is sent, or to whom it is trusted, and is not done.
    fn unsupported(&mut self) {
        if let Some((name, value)) = self.first(&COMPRESSION).filter(|(_, value)| *value != "none") {
            self.wrong(name, value, "no compression of ours", "`none`");
        }
        for name in FILES {
            if let Some((name, _)) = self.get(name) {
                let problem = Problem::new(Some(Place::Variable(name.into())), "", "files of certificates are not read");
                self.problems.push(problem.hint("the system's list of authorities is used; a collector beside the process needs no TLS"));
            }
        }
        if let Some((name, value)) = self.get(PROPAGATORS) {
            let known = |word: &str| matches!(word.trim(), "tracecontext" | "baggage" | "none");
            if !value.split(',').all(known) || !value.split(',').any(|word| word.trim() == "tracecontext") {
                self.wrong(name, value, "not what is done", "`tracecontext` is always spoken; baggage goes to nobody");
            }
        }
    }

    fn number(&mut self, names: &[&str], usual: u64, min: u64, max: u64) -> u64 {
        let Some((name, value)) = self.first(names) else { return usual };
        match value.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => number,
            Ok(_) | Err(_) => {
                self.wrong(name, value, "no such number", &format!("a whole number from {min} to {max}"));
                usual
            }
        }
    }

    fn sampler(&mut self) -> TraceSampler {
        let (parent_based, ratio) = match self.get(SAMPLER) {
            None | Some((_, "parentbased_always_on")) => (true, 1.0),
            Some((_, "parentbased_always_off")) => (true, 0.0),
            Some((_, "parentbased_traceidratio")) => (true, self.ratio()),
            Some((_, "always_on")) => (false, 1.0),
            Some((_, "always_off")) => (false, 0.0),
            Some((_, "traceidratio")) => (false, self.ratio()),
            Some((name, other)) => {
                let hint = "`always_on`, `always_off`, `traceidratio`, or one of them with `parentbased_` before it";
                self.wrong(name, other, "no sampler of ours", hint);
                (true, 1.0)
            }
        };
        TraceSampler { parent_based, ratio }
    }

    fn ratio(&mut self) -> f64 {
        let Some((name, value)) = self.get(SAMPLER_ARG) else { return 1.0 };
        match value.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
            Ok(_) | Err(_) => {
                self.wrong(name, value, "no share", "a number from 0 to 1");
                1.0
            }
        }
    }

    /// `key=value,key=value`, values percent-encoded; the name of the service beats them.
    fn resource(&mut self) -> BTreeMap<String, String> {
        let mut resource = BTreeMap::from([("service.name".to_owned(), "ambit".to_owned())]);
        if let Some((name, value)) = self.get(RESOURCE) {
            for pair in value.split_terminator(',') {
                let read = pair.split_once('=').and_then(|(key, value)| Some((key.trim(), decoded(value.trim())?)));
                match read.filter(|(key, _)| !key.is_empty()) {
                    Some((key, value)) => drop(resource.insert(key.to_owned(), value)),
                    None => self.wrong(name, pair, "no attribute", "like `service.namespace=shop,deployment.environment.name=prod`"),
                }
            }
        }
        if let Some((_, service)) = self.get(SERVICE) {
            resource.insert("service.name".to_owned(), service.to_owned());
        }
        resource
    }
}

/// A text without its percent-encoding; `None` if that is broken.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            tail.get(2..)?
        } else {
            bytes.push(*first);
            tail
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(env: &[(&str, &str)]) -> (Option<TraceExport>, Vec<String>, Vec<String>) {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (mut notices, mut problems) = (Vec::new(), Vec::new());
        let export = traces(&env, &mut notices, &mut problems);
        (export, notices, problems.iter().map(ToString::to_string).collect())
    }

    fn export(more: &[(&str, &str)]) -> TraceExport {
        let env: Vec<_> = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")].iter().chain(more).copied().collect();
        match read(&env) {
            (Some(export), _, problems) if problems.is_empty() => export,
            other => panic!("{more:?}: {other:?}"),
        }
    }

    fn refused(env: (&str, &str), reason: &str) {
        let (_, _, problems) = read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/t"), env]);
        assert_eq!(problems.len(), 1, "{env:?}: {problems:?}");
        assert!(problems[0].contains(env.0) && problems[0].contains(reason), "{env:?}: {problems:?}");
    }

    #[test]
    fn nothing_is_exported_unless_an_endpoint_is_named() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert_eq!(read(&[]), (None, vec![], vec![]));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), (None, vec![], vec![]));
        assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]), (None, vec![], vec![]));
        assert_eq!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), (None, vec![], vec![]));
        assert!(read(&[endpoint, ("OTEL_SDK_DISABLED", "yes")]).0.is_some());
        // What is meant for others of the same fleet hurts nobody while nothing is exported.
        assert_eq!(read(&[("OTEL_TRACES_SAMPLER", "xray")]), (None, vec![], vec![]));
        let (none, notices, problems) = read(&[("OTEL_TRACES_EXPORTER", "otlp")]);
        assert!(none.is_none() && problems.is_empty() && notices[0].contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{notices:?}");
    }

    #[test]
    fn the_usual_is_what_the_specification_says() {
        let usual = export(&[]);
        assert_eq!((usual.protocol, usual.endpoint.as_str()), (OtlpProtocol::Http, "http://collector:4318/v1/traces"));
        assert_eq!(usual.sampler, TraceSampler { parent_based: true, ratio: 1.0 });
        assert_eq!((usual.queue, usual.batch), (2_048, 512));
        assert_eq!((usual.delay, usual.timeout), (Duration::from_secs(5), Duration::from_secs(10)));
        assert_eq!(usual.resource, BTreeMap::from([("service.name".into(), "ambit".into())]));
    }

    #[test]
    fn endpoints_are_completed_as_the_specification_says() {
        let check = |env: &[(&str, &str)], expected: &str| assert_eq!(export(env).endpoint, expected, "{env:?}");
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://o/otlp/")], "https://o/otlp/v1/traces");
        check(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://o/mine")], "https://o/mine");
        check(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http://collector:4318");
        refused(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4318"), "no http or https address");
        refused(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http:///v1"), "no http or https address");
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://o:4317/"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "https://o:4317");
    }

    #[test]
    fn an_address_with_credentials_is_refused_and_never_shown() {
        for name in ENDPOINT {
            for wrong in ["http://me:hunter2@host", "me:hunter2@host", "http://me:hunter2/@host", "https:/me:hunter2@host:4318", "hunter2@"]
            {
                let (export, notices, problems) = read(&[(name, wrong)]);
                assert!(export.is_none() && problems.len() == 1, "{wrong}: {problems:?}");
                assert!(problems[0].contains(name) && problems[0].contains("credentials"), "{problems:?}");
                assert!(!format!("{notices:?} {problems:?}").contains("hunter2"), "{problems:?}");
            }
        }
        let check = export(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://o/team%40shop")]);
        assert_eq!(check.endpoint, "https://o/team%40shop");
    }

    #[test]
    fn what_has_no_effect_is_said_whether_traces_are_exported_or_not() {
        for (name, value, instead) in [
            ("OTEL_METRICS_EXPORTER", "otlp", "`/metrics`"),
            ("OTEL_LOGS_EXPORTER", "console", "standard error"),
            ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "true", "scheme"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "false", "scheme"),
        ] {
            for more in [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://o"), ("OTEL_TRACES_EXPORTER", "none")] {
                let (_, notices, problems) = read(&[(name, value), more]);
                assert!(problems.is_empty() && notices.len() == 1, "{name}: {notices:?} {problems:?}");
                assert!(notices[0].contains(name) && notices[0].contains(instead), "{notices:?}");
            }
            assert_eq!(read(&[(name, value), ("OTEL_SDK_DISABLED", "true")]), (None, vec![], vec![]));
        }
        assert_eq!(read(&[("OTEL_METRICS_EXPORTER", "none"), ("OTEL_LOGS_EXPORTER", "none")]), (None, vec![], vec![]));
    }

    #[test]
    fn samplers_are_the_standard_ones() {
        let check = |sampler, arg, parent_based, ratio| {
            let read = export(&[("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", arg)]).sampler;
            assert_eq!(read, TraceSampler { parent_based, ratio }, "{sampler} {arg}");
        };
        check("always_on", "", false, 1.0);
        check("always_off", "", false, 0.0);
        check("traceidratio", "0.25", false, 0.25);
        check("traceidratio", "", false, 1.0);
        check("parentbased_always_on", "", true, 1.0);
        check("parentbased_always_off", "", true, 0.0);
        check("parentbased_traceidratio", "0", true, 0.0);
        refused(("OTEL_TRACES_SAMPLER", "jaeger_remote"), "no sampler of ours");
        let ratio =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://o"), ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "1.01")];
        assert!(read(&ratio).2[0].contains("from 0 to 1"));
    }

    #[test]
    fn bounds_hold_at_the_limit_and_not_past_it() {
        assert_eq!(export(&[(QUEUE, "65536")]).queue, 65_536);
        refused((QUEUE, "65537"), "from 1 to 65536");
        refused((QUEUE, "0"), "from 1");
        assert_eq!(export(&[(QUEUE, "100")]).batch, 100, "a batch is never more than what may wait");
        assert_eq!(export(&[(QUEUE, "100"), (BATCH, "100")]).batch, 100);
        refused((BATCH, "2049"), "from 1 to 2048");
        assert_eq!(export(&[(DELAY, "600000")]).delay, Duration::from_secs(600));
        refused((DELAY, "600001"), "from 1 to 600000");
        refused(("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"), "whole number");
        assert_eq!(export(&[(EXPORT_TIMEOUT, "500")]).timeout, Duration::from_millis(500));
    }

    #[test]
    fn what_is_not_done_is_said() {
        refused(("OTEL_TRACES_EXPORTER", "zipkin"), "no exporter of ours");
        refused(("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"), "no protocol of ours");
        refused(("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), "no compression of ours");
        refused(("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"), "not read");
        refused(("OTEL_PROPAGATORS", "b3"), "not what is done");
        refused(("OTEL_PROPAGATORS", "baggage"), "not what is done");
        export(&[("OTEL_PROPAGATORS", "tracecontext, baggage"), ("OTEL_EXPORTER_OTLP_COMPRESSION", "none")]);
    }

    #[test]
    fn headers_are_checked_and_never_shown() {
        export(&[("OTEL_EXPORTER_OTLP_HEADERS", "api-key=se%20cret, tenant = ours,")]);
        for wrong in ["hunter2", "=hunter2", "a b=hunter2", "key=hunter2\u{e9}"] {
            refused(("OTEL_EXPORTER_OTLP_HEADERS", wrong), "no list of headers");
            let (_, _, problems) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://o"), ("OTEL_EXPORTER_OTLP_HEADERS", wrong)]);
            assert!(!problems[0].contains("hunter2"), "{problems:?}");
        }
    }

    #[test]
    fn resources_are_read_and_the_name_of_the_service_wins() {
        let resource = export(&[(RESOURCE, "service.name=a, team=r%26d,"), (SERVICE, "b")]).resource;
        assert_eq!(resource, BTreeMap::from([("service.name".into(), "b".into()), ("team".into(), "r&d".into())]));
        refused((RESOURCE, "team"), "no attribute");
        refused((RESOURCE, "=a"), "no attribute");
        refused((RESOURCE, "team=%zz"), "no attribute");
        refused((RESOURCE, "team=%ff"), "no attribute");
    }
}
