//! Checks which service accounts may read secrets while they have connected proxies, and updates
//! the push thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::boot::Boot;
use navarch_api::names::ClusterId;
use navarch_api::object::NamespacedName;
use navarch_push::mesh_state::{Change, RemoteChange};
use navarch_push::worker::{Ended, PushHandle};
use navarch_security::api_server::ApiServer;
use navarch_security::remote_servers::RemoteServers;
use navarch_security::secret_access::{AccessReviewer, KEPT_NO, KEPT_YES};
use navarch_xds::AccessRequest;

/// Interval of the check for expired answers.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// The cached access of a service account.
#[derive(Debug)]
struct Account {
    /// Alive as long as the requesting streams are.
    interests: Vec<Weak<()>>,
    /// Streams that wait for the first answer.
    waiting: Vec<oneshot::Sender<()>>,
    /// When the answer expires; `None` while there is none, or a new one is requested.
    due: Option<Instant>,
    /// The last answer.
    allowed: Option<bool>,
}

/// A service account, and its remote cluster, if it is not in the config cluster.
type AccountKey = (Option<ClusterId>, NamespacedName);

/// The checkers by cluster.
struct Reviewers {
    /// Reviews accounts of the cluster that configures the mesh.
    own: Arc<dyn AccessReviewer>,
    /// The name of that cluster.
    cluster: ClusterId,
    /// Reviews accounts of remote clusters.
    remotes: RemoteServers,
}

impl Reviewers {
    /// The account, with the cluster that its proxy names.
    fn account_key(&self, cluster: &str, account: NamespacedName) -> AccountKey {
        let cluster = self.remotes.resolve(cluster);
        (
            Some(cluster)
                .filter(|cluster| !cluster.as_str().is_empty() && *cluster != self.cluster),
            account,
        )
    }

    /// The checker of the accounts of a cluster.
    fn of(&self, cluster: Option<&ClusterId>) -> Option<Arc<dyn AccessReviewer>> {
        let Some(cluster) = cluster else {
            return Some(self.own.clone());
        };
        self.remotes
            .server(cluster)
            .map(|server| Arc::new(server) as Arc<dyn AccessReviewer>)
    }
}

/// The access of an account, sent to the push thread.
fn change((cluster, account): AccountKey, allowed: Option<bool>) -> Change {
    match cluster {
        None => Change::SecretReader(account, allowed),
        Some(cluster) => Change::Remote(cluster, RemoteChange::SecretReader(account, allowed)),
    }
}

/// Reviews in progress.
type Reviews = JoinSet<(AccountKey, Result<bool, String>)>;

/// Capacity of the request channel; streams block when it is full.
const MAX_PENDING_REVIEWS: usize = 1024;

/// Starts the task that asks the API server. Returns its request channel.
pub(super) fn start(
    client: &kube::Client,
    remotes: RemoteServers,
    push: &PushHandle,
    boot: &mut Boot,
) -> mpsc::Sender<AccessRequest> {
    let (questions, inbox) = mpsc::channel(MAX_PENDING_REVIEWS);
    let cluster = push.context().mesh.settings.cluster_id.clone();
    let reviewer = Reviewers {
        own: Arc::new(ApiServer::new(client.clone())),
        cluster,
        remotes,
    };

    boot.spawn_until_stop("secret access", run(reviewer, inbox, push.clone()));
    questions
}

/// Answers requests until all senders are closed.
///
/// # Errors
/// If the push thread has stopped.
async fn run(
    reviewer: Reviewers,
    mut questions: mpsc::Receiver<AccessRequest>,
    push: PushHandle,
) -> Result<(), Ended> {
    let mut accounts: BTreeMap<AccountKey, Account> = BTreeMap::new();
    let mut reviews = Reviews::new();
    let mut round = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        tokio::select! {
            question = questions.recv() => {
                let Some(question) = question else { return Ok(()) };
                take(question, &mut accounts, &reviewer, &mut reviews);
            }
            Some(Ok((name, answer))) = reviews.join_next() => {
                if let Some(account) = accounts.get_mut(&name) {
                    conclude(&name, account, answer, &push).await?;
                }
            }
            _ = round.tick() => refresh_reviews(&mut accounts, &reviewer, &mut reviews, &push).await?,
        }
    }
}

/// Handles a request: it is answered at once, or when its review completes.
fn take(
    question: AccessRequest,
    accounts: &mut BTreeMap<AccountKey, Account>,
    reviewer: &Reviewers,
    reviews: &mut Reviews,
) {
    let AccessRequest {
        cluster,
        account,
        interest,
        answered,
    } = question;

    let name = reviewer.account_key(&cluster, account);
    if let Some(account) = accounts.get_mut(&name) {
        account.interests.push(interest);
        match account.allowed {
            // The caller may have disconnected.
            Some(_) => _ = answered.send(()),
            None => account.waiting.push(answered),
        }
        return;
    }

    review(&name, reviewer, reviews);
    accounts.insert(
        name,
        Account {
            interests: vec![interest],
            waiting: vec![answered],
            due: None,
            allowed: None,
        },
    );
}

/// Starts the review of an account.
fn review(name: &AccountKey, reviewer: &Reviewers, reviews: &mut Reviews) {
    let (name, reviewer) = (name.clone(), reviewer.of(name.0.as_ref()));
    reviews.spawn(async move {
        let answer = match reviewer {
            Some(reviewer) => reviewer.may_list_secrets(&name.1).await,
            None => Err("its cluster is unknown".to_owned()),
        };
        (name, answer)
    });
}

/// Applies an answer. If the review failed, the last answer stays; without one the answer is no.
async fn conclude(
    name: &AccountKey,
    account: &mut Account,
    answer: Result<bool, String>,
    push: &PushHandle,
) -> Result<(), Ended> {
    let keep = match &answer {
        Ok(true) => KEPT_YES,
        Ok(false) => KEPT_NO,
        Err(error) => {
            let (cluster, account) = name;
            let cluster = cluster.as_ref().map(ToString::to_string);
            tracing::warn!(%account, cluster, error, "failed to check whether a service account may read secrets");
            KEPT_NO
        }
    };

    let allowed = answer.unwrap_or_else(|_| account.allowed.unwrap_or_default());
    account.allowed = Some(allowed);
    account.due = Some(Instant::now() + keep);
    push.change(vec![change(name.clone(), Some(allowed))])
        .await?;
    for waiting in account.waiting.drain(..) {
        let _ = waiting.send(());
    }

    Ok(())
}

/// Removes accounts without proxies, and reviews expired ones again.
async fn refresh_reviews(
    accounts: &mut BTreeMap<AccountKey, Account>,
    reviewer: &Reviewers,
    reviews: &mut Reviews,
    push: &PushHandle,
) -> Result<(), Ended> {
    let now = Instant::now();
    let mut gone = Vec::new();
    for (name, account) in &mut *accounts {
        account
            .interests
            .retain(|interest| interest.strong_count() > 0);
        let Some(due) = account.due else { continue };
        if account.interests.is_empty() {
            gone.push(name.clone());
        } else if due <= now {
            account.due = None;
            review(name, reviewer, reviews);
        }
    }

    for name in gone {
        accounts.remove(&name);
        push.change(vec![change(name, None)]).await?;
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::*;
    use navarch_api::settings::{SecretReaders, Settings};
    use navarch_envoy::EnvoyTranslator;
    use navarch_push::worker::{self, Debounce};
    use navarch_security::secret_access::Answer;

    /// Returns the configured answer, and counts calls.
    #[derive(Debug)]
    struct Fake {
        answer: Mutex<Result<bool, String>>,
        requests: AtomicUsize,
    }

    impl AccessReviewer for Fake {
        fn may_list_secrets<'a>(&'a self, _: &'a NamespacedName) -> Answer<'a> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let answer = self.answer.lock().clone();
            Box::pin(async move { answer })
        }
    }

    /// Asks, and waits for the answer.
    async fn ask(questions: &mpsc::Sender<AccessRequest>, interest: &Arc<()>) {
        let (answered, answer) = oneshot::channel();
        let account = NamespacedName::new("edge", "gw");
        questions
            .send(AccessRequest {
                cluster: Arc::from(""),
                account,
                interest: Arc::downgrade(interest),
                answered,
            })
            .await
            .unwrap();
        answer.await.unwrap();
    }

    #[tokio::test]
    async fn access_reviews_are_shared_renewed_and_dropped_with_the_last_proxy() {
        let settings = Settings {
            secret_readers: SecretReaders::Reviewed,
            ..Settings::default()
        };
        let (push, _) =
            worker::start(settings, Debounce::default(), Arc::new(EnvoyTranslator)).unwrap();
        let fake = Arc::new(Fake {
            answer: Mutex::new(Ok(true)),
            requests: AtomicUsize::new(0),
        });

        let (questions, inbox) = mpsc::channel(4);
        let mut task = JoinSet::new();
        let reviewers = || Reviewers {
            own: fake.clone(),
            cluster: ClusterId::new("Kubernetes"),
            remotes: RemoteServers::default(),
        };
        task.spawn(run(reviewers(), inbox, push.clone()));

        let interest = Arc::new(());
        let name = NamespacedName::new("edge", "gw");
        let known = || async {
            let name = name.clone();
            push.inspect(move |inspect| inspect.engine.context().secret_readers.get(&name).copied())
                .await
                .unwrap()
        };

        ask(&questions, &interest).await;
        ask(&questions, &interest).await;
        assert_eq!(
            (known().await, fake.requests.load(Ordering::Relaxed)),
            (Some(true), 1)
        );
        drop(questions);
        task.join_next().await.unwrap().unwrap().unwrap();

        // An API server that does not answer revokes nothing; one that denies access does.
        let mut account = Account {
            interests: Vec::new(),
            waiting: Vec::new(),
            due: None,
            allowed: Some(true),
        };

        let key = (None, name.clone());
        conclude(&key, &mut account, Err("down".to_owned()), &push)
            .await
            .unwrap();
        assert_eq!(known().await, Some(true));
        conclude(&key, &mut account, Ok(false), &push)
            .await
            .unwrap();

        assert_eq!(known().await, Some(false));

        // Nobody is left who would care.
        let mut accounts = BTreeMap::from([(key, account)]);
        refresh_reviews(&mut accounts, &reviewers(), &mut Reviews::new(), &push)
            .await
            .unwrap();
        assert!(accounts.is_empty());
        assert_eq!(known().await, None);
    }
}
