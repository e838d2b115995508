//! Encoding of events as lines, and of the state as the initial lines of a segment.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use navarch_api::settings::Settings;
use navarch_push::context::PushContext;
use navarch_push::engine::{Interest, ProxyId};
use navarch_push::observer::{Before, Event, PublishedCollection};
use navarch_push::proxy::Proxy;
use navarch_push::resource::ResourceType;

use super::format::{
    At, Complete, Gone, Header, Line, Lost, Moment, Nack, OfProxy, ProxyLine, Push, PushGroup,
    Took, VERSION, Watch, ranges,
};
use super::inputs::{Inputs, written};
use super::name_sets::NameSets;
use super::push_groups::PushGroups;
use super::redact::{Redactor, redact_metadata};

/// Maximum length in bytes of a recorded NACK message.
const MAX_NACK_MESSAGE: usize = 4096;

/// The initial state of a segment, and its encoding.
#[derive(Debug)]
pub(crate) struct Journal {
    settings: Settings,
    version: &'static str,
    run: String,
    redactor: Redactor,
    inputs: Inputs,
    proxies: BTreeMap<u64, Connected>,
    interests: BTreeMap<SubscriptionKey, Interest>,
    groups: PushGroups,
    names: NameSets,
    /// The snapshot in force, previous versions of objects, and its revision.
    force: Option<(Arc<PushContext>, Before, u64)>,
    is_synced: bool,
}

/// A subscription of a proxy to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SubscriptionKey {
    /// [`ProxyId::number`].
    proxy: u64,
    resource_type: ResourceType,
}

#[derive(Debug)]
struct Connected {
    proxy: Arc<Proxy>,
    peer: Option<IpAddr>,
    at: Timestamp,
}

impl Journal {
    /// An empty state.
    pub(crate) fn new(settings: Settings, version: &'static str, started: Timestamp) -> Self {
        Self {
            settings,
            version,
            run: format!("{started}-{}", std::process::id()),
            redactor: Redactor::new(),
            inputs: Inputs::default(),
            proxies: BTreeMap::new(),
            interests: BTreeMap::new(),
            groups: PushGroups::default(),
            names: NameSets::default(),
            force: None,
            is_synced: false,
        }
    }

    /// Writes the initial state of a segment.
    pub(crate) fn begin(
        &mut self,
        segment: u64,
        now: Timestamp,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.names = NameSets::default();
        let format = VERSION;
        let navarch = self.version.to_owned();
        let at = Moment(now);
        let run = self.run.clone();
        let settings = self.settings.clone();
        let header = Header {
            format,
            navarch,
            run,
            segment,
            at,
            settings,
        };

        line(out, &Line::Header(Box::new(header)))?;
        let mut revision = 0;

        if let Some((context, before, of)) = &self.force {
            revision = *of;
            for change in self.inputs.all(context, before) {
                line(
                    out,
                    &Line::Input(Box::new(written(&change, &self.redactor)?)),
                )?;
            }
        }

        for (number, connected) in &self.proxies {
            line(out, &proxy_line(*number, connected))?;
        }

        for (subscription, interest) in &self.interests {
            let pushes = Vec::new();
            watch(
                now,
                *subscription,
                Some(interest),
                &mut self.names,
                None,
                pushes,
                out,
            )?;
        }

        line(
            out,
            &Line::Complete(Complete {
                at,
                revision,
                synced: self.is_synced,
                pushes: self.groups.all(),
            }),
        )
    }

    /// Applies an event to the state, and writes it.
    pub(crate) fn note(
        &mut self,
        now: Timestamp,
        event: Event,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let at = Moment(now);

        match event {
            Event::Connected(id, proxy, peer) => {
                let connected = Connected {
                    proxy,
                    peer,
                    at: now,
                };
                let entry = proxy_line(id.number(), &connected);
                self.proxies.insert(id.number(), connected);
                line(out, &entry)
            }
            Event::Gone(id) => {
                let number = id.number();
                self.proxies.remove(&number);
                self.groups.forget_all(number);
                self.interests
                    .retain(|subscription, _| subscription.proxy != number);
                line(
                    out,
                    &Line::Gone(Gone {
                        at,
                        proxies: ranges([number]),
                    }),
                )
            }
            Event::Subscribed {
                proxy,
                resource_type,
                interest,
                published,
            } => {
                let subscription = SubscriptionKey {
                    proxy: proxy.number(),
                    resource_type,
                };
                self.note_subscribed(now, subscription, interest, published, out)
            }
            Event::Unsubscribed(proxy, resource_type) => {
                let proxy = proxy.number();
                self.unwatch(SubscriptionKey {
                    proxy,
                    resource_type,
                });
                let r#type = resource_type.short_name().to_owned();
                line(out, &Line::Unwatch(OfProxy { at, proxy, r#type }))
            }
            Event::Applied {
                changes,
                context,
                before,
                revision,
                published,
            } => {
                for change in &changes {
                    self.inputs.apply(change);
                    line(
                        out,
                        &Line::Input(Box::new(written(change, &self.redactor)?)),
                    )?;
                }

                self.force = Some((context, before, revision));
                let pushes = self.set_published(published);
                line(
                    out,
                    &Line::Push(Push {
                        at,
                        revision,
                        anew: false,
                        pushes,
                    }),
                )
            }
            Event::Recomputed(published) => self.note_recomputed(at, published, out),
            Event::Synced => {
                self.is_synced = true;
                line(out, &Line::Synced(At { at }))
            }
            Event::Taken(proxy, resource_type) => {
                self.note_taken(now, &[(proxy, resource_type)], out)
            }
            Event::Rejected(proxy, resource_type, message) => {
                let nack = Nack {
                    at,
                    proxy: proxy.number(),
                    r#type: resource_type.short_name().to_owned(),
                    said: message.chars().take(MAX_NACK_MESSAGE).collect(),
                };
                line(out, &Line::Nack(nack))
            }
        }
    }

    fn note_recomputed(
        &mut self,
        at: Moment,
        published: Vec<PublishedCollection>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let revision = self.force.as_mut().map_or(0, |(_, _, revision)| {
            *revision += 1;
            *revision
        });
        let pushes = self.set_published(published);

        line(
            out,
            &Line::Push(Push {
                at,
                revision,
                anew: true,
                pushes,
            }),
        )
    }

    fn note_subscribed(
        &mut self,
        now: Timestamp,
        subscription: SubscriptionKey,
        interest: Option<Interest>,
        published: Vec<PublishedCollection>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let pushes = self.set_published(published);
        let before = self
            .interests
            .get(&subscription)
            .map(|interest| interest.names.clone());

        watch(
            now,
            subscription,
            interest.as_ref(),
            &mut self.names,
            before.as_ref(),
            pushes,
            out,
        )?;

        match interest {
            Some(interest) => _ = self.interests.insert(subscription, interest),
            None => self.unwatch(subscription),
        }

        Ok(())
    }

    /// Writes the ACKs since the last call.
    pub(crate) fn note_taken(
        &self,
        now: Timestamp,
        taken: &[(ProxyId, ResourceType)],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut of: BTreeMap<ResourceType, Vec<u64>> = BTreeMap::new();
        for (proxy, resource_type) in taken {
            of.entry(*resource_type).or_default().push(proxy.number());
        }
        for (resource_type, proxies) in of {
            let at = Moment(now);
            let r#type = resource_type.short_name().to_owned();
            line(
                out,
                &Line::Took(Took {
                    at,
                    r#type,
                    proxies: ranges(proxies),
                }),
            )?;
        }
        Ok(())
    }

    /// Writes that the events from here on are missing.
    pub(crate) fn note_lost(now: Timestamp, reason: &str, out: &mut dyn Write) -> io::Result<()> {
        line(
            out,
            &Line::Lost(Lost {
                at: Moment(now),
                why: reason.to_owned(),
            }),
        )
    }

    fn set_published(&mut self, published: Vec<PublishedCollection>) -> Vec<PushGroup> {
        self.groups.set(
            published
                .into_iter()
                .map(|published| (published.proxy.number(), published.collection)),
        )
    }

    fn unwatch(&mut self, subscription: SubscriptionKey) {
        self.interests.remove(&subscription);
        self.groups
            .forget(subscription.proxy, subscription.resource_type);
    }
}

/// Writes a subscription, preceded by its set of names unless that was written before; `before` are
/// the names of the proxy's previous subscription to the type.
fn watch(
    now: Timestamp,
    subscription: SubscriptionKey,
    interest: Option<&Interest>,
    names: &mut NameSets,
    before: Option<&super::name_sets::Names>,
    pushes: Vec<PushGroup>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let requested = interest
        .map(|interest| &interest.names)
        .filter(|names| !names.is_empty());
    let set = match requested {
        None => None,
        Some(subscribed) => {
            let (number, new_set) = names.number(subscribed, before);
            if let Some(definition) = new_set {
                line(out, &Line::Names(definition))?;
            }
            Some(number)
        }
    };

    let wildcard = interest.is_some_and(|interest| interest.wildcard);
    let given_up = interest.is_none();
    let r#type = subscription.resource_type.short_name().to_owned();
    line(
        out,
        &Line::Watch(Watch {
            at: Moment(now),
            proxy: subscription.proxy,
            r#type,
            wildcard,
            set,
            given_up,
            pushes,
        }),
    )
}

/// A proxy in the recording format.
fn proxy_line(number: u64, connected: &Connected) -> Line {
    let Connected { proxy, peer, at } = connected;
    let locality = &proxy.locality;
    let extensions = proxy.extensions.as_ref();
    Line::Proxy(Box::new(ProxyLine {
        number,
        at: Moment(*at),
        node: proxy.node_id.to_string(),
        cluster: proxy.service_cluster.to_string(),
        metadata: redact_metadata(&proxy.metadata),
        locality: [&locality.region, &locality.zone, &locality.sub_zone].map(ToString::to_string),
        extensions: extensions.map(|all| all.iter().map(ToString::to_string).collect()),
        deltas: proxy.uses_delta,
        identity: proxy.identity.as_ref().map(ToString::to_string),
        has_learned_scope: proxy.has_learned_scope,
        peer: *peer,
    }))
}

fn line(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
