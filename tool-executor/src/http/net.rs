//! Where HTTP may lead: names by an allow-list, addresses at the moment of connecting.
//!
//! A name that was harmless when it was checked may resolve to the metadata service a moment later, so addresses are
//! judged in the resolver itself, on the very list that is then connected to. A host that is written as an address
//! never reaches a resolver; it is judged where the request is built, and again at each redirect.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// One thing that is allowed: a name (`api.example.com`, `*.example.com`) or addresses (`10.1.0.0/16`, `127.0.0.1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowRule {
    /// This name.
    Host(String),
    /// All names below this one.
    Below(String),
    /// Addresses that are reachable though they are not public.
    Net {
        /// The first of them.
        address: IpAddr,
        /// How many leading bits they share.
        bits: u8,
    },
}

/// Says why a text is no [`AllowRule`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a host, `*.host`, an address nor a range `address/bits`")]
pub struct InvalidAllowRule(String);

impl FromStr for AllowRule {
    type Err = InvalidAllowRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidAllowRule(text.chars().take(128).collect());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        if let Ok(address) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
            let all = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Ok(all), str::parse).map_err(|_| invalid())?;
            return if bits <= all { Ok(Self::Net { address, bits }) } else { Err(invalid()) };
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        match Host::parse(name) {
            Ok(Host::Domain(name)) if !name.contains(['*', '/']) => Ok(if below { Self::Below(name) } else { Self::Host(name) }),
            Ok(_) | Err(_) => Err(invalid()),
        }
    }
}

impl AllowRule {
    fn has_name(&self, name: &str) -> bool {
        match self {
            Self::Host(host) => host == name,
            Self::Below(parent) => name.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1),
            Self::Net { .. } => false,
        }
    }

    fn has_address(&self, ip: IpAddr) -> bool {
        let (own, ip, bits) = match (self, ip) {
            (Self::Net { address: IpAddr::V4(own), bits }, IpAddr::V4(ip)) => {
                (u128::from(own.to_bits()) << 96, u128::from(ip.to_bits()) << 96, *bits)
            }
            (Self::Net { address: IpAddr::V6(own), bits }, IpAddr::V6(ip)) => (own.to_bits(), ip.to_bits(), *bits),
            (Self::Net { .. } | Self::Host(_) | Self::Below(_), IpAddr::V4(_) | IpAddr::V6(_)) => return false,
        };
        bits == 0 || (own ^ ip) >> (128 - u32::from(bits)) == 0
    }
}

/// What a name stands for in profile `dev`, without asking DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMapping {
    /// Where it leads. The port is used where the address of the request names none.
    pub address: SocketAddr,
    /// How it is judged.
    pub treat: Treat,
}

/// How a mapped address is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treat {
    /// By what it is: a loopback address is refused unless a rule allows it.
    AsIs,
    /// As if it were public.
    Public,
}

/// Judges names and addresses. Shared by all HTTP that leaves this crate.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    allow: Vec<AllowRule>,
    hosts: BTreeMap<String, HostMapping>,
}

/// Says that a host or address is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocked(pub(crate) String);

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Blocked {}

impl Guard {
    pub(crate) fn new(allow: Vec<AllowRule>, hosts: BTreeMap<String, HostMapping>) -> Self {
        Self { allow, hosts }
    }

    /// Judges the host of an address that is about to be asked. `own` is the host that the configuration itself names.
    pub(crate) fn check(&self, url: &Url, own: &str) -> Result<(), Blocked> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Blocked(format!("the scheme `{}` is not allowed", url.scheme())));
        }
        match url.host() {
            None => Err(Blocked("an address without a host".into())),
            Some(Host::Ipv4(ip)) => self.check_ip(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => self.check_ip(IpAddr::V6(ip)),
            Some(Host::Domain(name)) => {
                if name == own || self.hosts.contains_key(name) || self.allow.iter().any(|rule| rule.has_name(name)) {
                    Ok(())
                } else {
                    Err(Blocked(format!("the host `{name}` is not in `http.allow`")))
                }
            }
        }
    }

    fn check_ip(&self, ip: IpAddr) -> Result<(), Blocked> {
        if is_public(ip) || self.allow.iter().any(|rule| rule.has_address(ip)) {
            return Ok(());
        }
        Err(Blocked(format!("the address {ip} is not public and not in `http.allow`")))
    }

    async fn addresses(&self, name: &str) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        if let Some(mapping) = self.hosts.get(name) {
            if mapping.treat == Treat::AsIs {
                self.check_ip(mapping.address.ip())?;
            }
            return Ok(vec![mapping.address]);
        }
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in tokio::net::lookup_host((name, 0)).await? {
            match self.check_ip(address.ip()) {
                Ok(()) => allowed.push(address),
                Err(blocked) => refused = Some(blocked),
            }
        }
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, Some(Blocked(reason))) => Err(Box::new(Blocked(format!("`{name}`: {reason}")))),
            (true, None) => Err(Box::new(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
        }
    }
}

/// [`Guard`] as reqwest wants to see it.
#[derive(Debug)]
pub(crate) struct Resolver(pub(crate) std::sync::Arc<Guard>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = std::sync::Arc::clone(&self.0);
        Box::pin(async move {
            let addresses = guard.addresses(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The refusal behind an error, if it was one.
pub(crate) fn blocked_by(error: &(dyn Error + 'static)) -> Option<Blocked> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(blocked) = error.downcast_ref::<Blocked>() {
            return Some(blocked.clone());
        }
        next = error.source();
    }
    None
}

/// True for addresses of the public internet (IANA's special-purpose registries, and one cloud's metadata service
/// that lives among public ones).
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast()
        || ip.is_documentation()
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
        || a >= 240;
    // Azure's platform endpoint.
    !special && ip != Ipv4Addr::new(168, 63, 129, 16)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(v4) = embedded_v4(ip) {
        return is_public_v4(v4);
    }
    let first = ip.segments()[0];
    // Global unicast is 2000::/3; of it, Teredo, benchmarking, ORCHID and documentation are not.
    let special = matches!(ip.segments(), [0x2001, 0 | 2 | 0x10..=0x2f | 0xdb8, ..]) || matches!(ip.segments(), [0x3fff, 0..=0xfff, ..]);
    (0x2000..0x4000).contains(&first) && !special
}

/// The IPv4 address that an IPv6 one leads to: mapped, compatible, NAT64 and 6to4.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff | 0] if !ip.is_loopback() && !ip.is_unspecified() => Some(join(g, h)),
        [0x64, 0xff9b, 0, 0, 0, 0] => Some(join(g, h)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow: &[&str]) -> Guard {
        let hosts = BTreeMap::from([
            ("mapped.test".to_owned(), HostMapping { address: "127.0.0.1:81".parse().unwrap(), treat: Treat::Public }),
            ("inside.test".to_owned(), HostMapping { address: "169.254.169.254:80".parse().unwrap(), treat: Treat::AsIs }),
        ]);
        Guard::new(allow.iter().map(|rule| rule.parse().unwrap()).collect(), hosts)
    }

    #[test]
    fn only_the_public_internet_is_public() {
        for ip in
            ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"]
        {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn rules_are_read_and_judge() {
        for (rule, ip, allowed) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "192.168.0.1", true),
            ("[::1]", "::1", true),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "10.0.0.1", false),
        ] {
            assert_eq!(rule.parse::<AllowRule>().unwrap().has_address(ip.parse().unwrap()), allowed, "{rule} {ip}");
        }
        for (rule, name, allowed) in [
            ("api.example.com", "api.example.com", true),
            ("API.example.com", "api.example.com", true),
            ("api.example.com", "xapi.example.com", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evilexample.com", false),
        ] {
            assert_eq!(rule.parse::<AllowRule>().unwrap().has_name(name), allowed, "{rule} {name}");
        }
        for rule in ["", "*", "a b", "10.0.0.0/33", "10.0.0.0/x", "a.*.b", "http://x/"] {
            assert!(rule.parse::<AllowRule>().is_err(), "{rule}");
        }
    }

    #[test]
    fn hosts_are_judged_before_anything_is_resolved() {
        for (allow, url, fine) in [
            (&[][..], "https://own.test/x", true),
            (&[], "https://other.test/", false),
            (&["other.test"], "https://other.test/", true),
            (&[], "https://mapped.test/", true),
            (&[], "http://127.0.0.1:80/", false),
            (&["127.0.0.0/8"], "http://127.0.0.1:80/", true),
            (&[], "http://8.8.8.8/", true),
            (&[], "http://0x7f.1/", false),
            (&[], "http://2130706433/", false),
            (&[], "http://[::ffff:169.254.169.254]/", false),
            (&[], "ftp://own.test/", false),
        ] {
            assert_eq!(guard(allow).check(&Url::parse(url).unwrap(), "own.test").is_ok(), fine, "{url} {allow:?}");
        }
    }

    #[tokio::test]
    async fn addresses_are_judged_where_they_are_found() {
        let of = async |allow: &[&str], name: &str| guard(allow).addresses(name).await.map_err(|error| blocked_by(&*error).is_some());
        assert_eq!(of(&[], "mapped.test").await, Ok(vec!["127.0.0.1:81".parse().unwrap()]));
        assert_eq!(of(&[], "inside.test").await, Err(true));
        assert_eq!(of(&[], "localhost").await, Err(true));
        assert!(of(&["127.0.0.0/8", "::1"], "localhost").await.is_ok());
    }
}
