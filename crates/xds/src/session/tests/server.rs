//! The server's side of a conversation.

use std::collections::{BTreeMap, VecDeque};

use super::super::*;
use super::rig::*;
use crate::session::mailbox::Mailbox;
use navarch_push::engine::{PushCause, Sink};
use navarch_push::fact::FactKey;

/// All resources, by type and name.
pub(crate) type World = BTreeMap<ResourceType, BTreeMap<String, String>>;

/// A session between a push thread and a connection, each as slow as the test wants.
pub(crate) struct Server {
    pub(crate) rig: Rig,
    pub(crate) mailbox: Mailbox,
    pub(crate) world: World,
    /// The commands that the push thread has not handled yet.
    pub(crate) commands: VecDeque<Effect>,
    pub(crate) shown: BTreeMap<ResourceType, (Interest, Arc<Collection>)>,
    pub(crate) to_client: VecDeque<Response>,
}

impl Server {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            rig: Rig::new(protocol),
            mailbox: Mailbox::default(),
            world: World::new(),
            commands: VecDeque::new(),
            shown: BTreeMap::new(),
            to_client: VecDeque::new(),
        }
    }

    /// The client's stream breaks, and it opens a new one.
    pub(crate) fn restart(&mut self) {
        let mut fresh = Self::new(self.rig.session.protocol);
        fresh.world = std::mem::take(&mut self.world);
        fresh.rig.revision = self.rig.revision;
        fresh.rig.session.marks.stream = self.rig.session.marks.stream + 1;
        *self = fresh;
    }

    pub(crate) fn request(&mut self, request: Request) {
        let effects = self.rig.request(request);
        self.commands.extend(effects);
    }

    pub(crate) fn look_up(
        &self,
        resource_type: ResourceType,
        interest: &Interest,
    ) -> Arc<Collection> {
        let all = self.world.get(&resource_type).cloned().unwrap_or_default();
        let shown = all
            .into_iter()
            .filter(|(name, _)| interest.wildcard || interest.names.contains(name.as_str()))
            .collect();
        collection(resource_type, &shown)
    }

    /// The push thread handles one command.
    pub(crate) fn push_thread(&mut self) {
        match self.commands.pop_front() {
            Some(Effect::Subscribe(resource_type, interest)) => {
                let collection = self.look_up(resource_type, &interest);
                self.shown
                    .insert(resource_type, (interest, collection.clone()));
                let cause = PushCause {
                    revision: self.rig.revision,
                    changed: Vec::new(),
                    answers: 1,
                };
                self.mailbox
                    .publish(resource_type, collection, &Arc::new(cause));
            }
            Some(Effect::Unsubscribe(resource_type)) => {
                self.shown.remove(&resource_type);
            }
            Some(Effect::Rejected(..) | Effect::Stale(_) | Effect::LimitExceeded(_)) | None => {}
        }
    }

    pub(crate) fn change(&mut self, edit: impl FnOnce(&mut World)) {
        edit(&mut self.world);
        self.rig.revision += 1;
        let cause = Arc::new(PushCause {
            revision: self.rig.revision,
            changed: vec![FactKey::Mesh],
            answers: 0,
        });
        let mut shown = std::mem::take(&mut self.shown);

        // In arbitrary order, as in the engine.
        for (resource_type, (interest, old)) in shown.iter_mut().rev() {
            let new = self.look_up(*resource_type, interest);
            if *new != **old {
                *old = new.clone();
                self.mailbox.publish(*resource_type, new, &cause);
            }
        }

        self.shown = shown;
        self.mailbox.change_ended();
    }

    pub(crate) fn take_mail(&mut self) {
        let mut updates = Vec::new();
        self.mailbox.take(&mut updates);
        for (resource_type, update) in updates {
            self.rig
                .session
                .step(Event::Update(resource_type, update), &self.rig.cache);
        }
    }

    pub(crate) fn send(&mut self) -> bool {
        self.take_mail();
        let response = self.rig.session.next(self.rig.now, &self.rig.cache);
        let sent = response.is_some();
        self.to_client.extend(response);
        sent
    }
}
