//! Who a target is, in the words of the GenAI semantic conventions.

use std::sync::Arc;

use ambit_core::signal::{Address, Peer};
use reqwest::Url;

use crate::options::{DialectOptions, TargetOptions};

/// Hosts whose provider has a well-known name (`gen_ai.provider.name`); their subdomains are meant as well.
const PROVIDERS: [(&str, &str); 10] = [
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
];

/// What the spans of a target's attempts say about it.
pub(crate) fn of(options: &TargetOptions) -> Peer {
    match &options.dialect {
        // A server that speaks a provider's dialect and is nobody known goes by the dialect.
        DialectOptions::OpenAiChat(provider) | DialectOptions::OpenAiResponses(provider) => model(options, &provider.base_urls, "openai"),
        DialectOptions::Anthropic(provider) => model(options, &provider.base_urls, "anthropic"),
        DialectOptions::Scripted(_) => model(options, &[], "ambit.scripted"),
    }
}

fn model(options: &TargetOptions, base_urls: &[String], usual: &'static str) -> Peer {
    let host = base_urls.first().and_then(|base| Url::parse(base).ok());
    let provider = host.as_ref().and_then(Url::host_str).and_then(provider).unwrap_or(usual);
    // With several places, which of them an attempt goes to is known only when it leaves.
    let address = host.filter(|_| base_urls.len() == 1).and_then(|url| address(&url));
    Peer::Model { provider, model: Arc::clone(&options.model), address }
}

fn address(url: &Url) -> Option<Address> {
    Some(Address { host: url.host_str()?.into(), port: url.port_or_known_default() })
}

fn provider(host: &str) -> Option<&'static str> {
    let is_of = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    PROVIDERS.iter().find(|(domain, _)| is_of(domain)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_known_by_their_hosts() {
        assert_eq!(provider("api.openai.com"), Some("openai"));
        assert_eq!(provider("eu.api.openai.com"), Some("openai"));
        assert_eq!(provider("me.openai.azure.com"), Some("azure.ai.openai"));
        assert_eq!(provider("notapi.openai.com"), None);
        assert_eq!(provider("127.0.0.1"), None);
    }
}
