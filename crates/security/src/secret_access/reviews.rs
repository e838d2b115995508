//! Reviews which service accounts may read secrets while they have connected proxies, and publishes
//! the results.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{AccessReviewer, KEPT_NO, KEPT_YES};
use crate::api_server::{ApiServer, ReviewError};
use crate::remote_servers::RemoteServers;
use navarch_api::names::ClusterId;
use navarch_api::object::NamespacedName;

/// Interval of the check for expired answers.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// A request to check whether a service account may read the secrets of its namespace. The result
/// is published.
#[derive(Debug)]
pub struct AccessRequest {
    /// The cluster from the proxy's metadata; empty if not set.
    pub cluster: Arc<str>,
    /// The service account.
    pub account: NamespacedName,
    /// Dropped with the stream, after which the result need not be kept up to date.
    pub interest: Weak<()>,
    /// Completes when the result is published.
    pub answered: oneshot::Sender<()>,
}

/// A service account of one of the clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountKey {
    /// Its remote cluster; `None` for the cluster that configures the mesh.
    pub cluster: Option<ClusterId>,
    /// The service account.
    pub account: NamespacedName,
}

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

/// The reviewers by cluster.
pub struct Reviewers {
    /// Reviews accounts of the cluster that configures the mesh.
    own: Arc<dyn AccessReviewer>,
    /// The name of that cluster.
    cluster: ClusterId,
    /// Reviews accounts of remote clusters.
    remotes: RemoteServers,
}

impl Reviewers {
    /// The API servers: `client` reviews the accounts of `cluster`, which configures the mesh, and
    /// `remotes` those of their own clusters.
    #[must_use]
    pub fn new(client: kube::Client, cluster: ClusterId, remotes: RemoteServers) -> Self {
        Self {
            own: Arc::new(ApiServer::new(client)),
            cluster,
            remotes,
        }
    }

    /// The account, with the cluster that its proxy names.
    fn account_key(&self, cluster: &str, account: NamespacedName) -> AccountKey {
        let cluster = self.remotes.resolve(cluster);
        let is_remote = !cluster.as_str().is_empty() && cluster != self.cluster;
        AccountKey {
            cluster: is_remote.then_some(cluster),
            account,
        }
    }

    /// The reviewer of the accounts of a cluster.
    fn of(&self, cluster: Option<&ClusterId>) -> Option<Arc<dyn AccessReviewer>> {
        let Some(cluster) = cluster else {
            return Some(self.own.clone());
        };
        self.remotes
            .server(cluster)
            .map(|server| Arc::new(server) as Arc<dyn AccessReviewer>)
    }
}

impl fmt::Debug for Reviewers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewers")
            .field("cluster", &self.cluster)
            .field("remotes", &self.remotes)
            .finish_non_exhaustive()
    }
}

/// Reviews in progress.
type Reviews = JoinSet<(AccountKey, Result<bool, ReviewError>)>;

/// Answers requests until all senders of `requests` are closed. `publish` receives every result:
/// whether the account may read secrets, or `None` once no stream needs the result. Requests are
/// answered after that.
///
/// # Errors
/// If `publish` fails.
pub async fn run<F, E>(
    reviewers: Reviewers,
    mut requests: mpsc::Receiver<AccessRequest>,
    publish: impl Fn(AccountKey, Option<bool>) -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let mut accounts: BTreeMap<AccountKey, Account> = BTreeMap::new();
    let mut reviews = Reviews::new();
    let mut round = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(request) = request else { return Ok(()) };
                take(request, &mut accounts, &reviewers, &mut reviews);
            }
            Some(Ok((name, answer))) = reviews.join_next() => {
                if let Some(account) = accounts.get_mut(&name) {
                    conclude(&name, account, answer, &publish).await?;
                }
            }
            _ = round.tick() => {
                refresh_reviews(&mut accounts, &reviewers, &mut reviews, &publish).await?;
            }
        }
    }
}

/// Handles a request: it is answered at once, or when its review completes.
fn take(
    request: AccessRequest,
    accounts: &mut BTreeMap<AccountKey, Account>,
    reviewers: &Reviewers,
    reviews: &mut Reviews,
) {
    let AccessRequest {
        cluster,
        account,
        interest,
        answered,
    } = request;

    let name = reviewers.account_key(&cluster, account);
    if let Some(account) = accounts.get_mut(&name) {
        account.interests.push(interest);
        match account.allowed {
            // The caller may have disconnected.
            Some(_) => _ = answered.send(()),
            None => account.waiting.push(answered),
        }
        return;
    }

    review(&name, reviewers, reviews);
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
fn review(name: &AccountKey, reviewers: &Reviewers, reviews: &mut Reviews) {
    let name = name.clone();
    let reviewer = reviewers.of(name.cluster.as_ref());
    reviews.spawn(async move {
        let answer = match reviewer {
            Some(reviewer) => reviewer.may_list_secrets(&name.account).await,
            None => Err(ReviewError::UnknownCluster),
        };
        (name, answer)
    });
}

/// Applies an answer. If the review failed, the last answer stays; without one the answer is no.
async fn conclude<F, E>(
    name: &AccountKey,
    account: &mut Account,
    answer: Result<bool, ReviewError>,
    publish: &impl Fn(AccountKey, Option<bool>) -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let keep = match &answer {
        Ok(true) => KEPT_YES,
        Ok(false) => KEPT_NO,
        Err(error) => {
            let account = &name.account;
            let cluster = name.cluster.as_ref().map(ToString::to_string);
            tracing::warn!(%account, cluster, %error, "failed to check whether a service account may read secrets");
            KEPT_NO
        }
    };

    let allowed = answer.unwrap_or_else(|_| account.allowed.unwrap_or_default());
    account.allowed = Some(allowed);
    account.due = Some(Instant::now() + keep);
    publish(name.clone(), Some(allowed)).await?;
    for waiting in account.waiting.drain(..) {
        let _ = waiting.send(());
    }

    Ok(())
}

/// Removes accounts without proxies, and reviews expired ones again.
async fn refresh_reviews<F, E>(
    accounts: &mut BTreeMap<AccountKey, Account>,
    reviewers: &Reviewers,
    reviews: &mut Reviews,
    publish: &impl Fn(AccountKey, Option<bool>) -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
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
            review(name, reviewers, reviews);
        }
    }

    for name in gone {
        accounts.remove(&name);
        publish(name, None).await?;
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::*;
    use crate::secret_access::AccessFuture;

    /// Lets every account list secrets, and counts calls.
    #[derive(Debug, Default)]
    struct Fake {
        requests: AtomicUsize,
    }

    impl AccessReviewer for Fake {
        fn may_list_secrets<'a>(&'a self, _: &'a NamespacedName) -> AccessFuture<'a> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            Box::pin(ready(Ok(true)))
        }
    }

    /// Requests the check, and waits for its result.
    async fn ask(requests: &mpsc::Sender<AccessRequest>, interest: &Arc<()>) {
        let (answered, answer) = oneshot::channel();
        let account = NamespacedName::new("edge", "gw");
        requests
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
        let fake = Arc::new(Fake::default());

        let published = Arc::new(Mutex::new(BTreeMap::new()));
        let publish = {
            let published = published.clone();
            move |name: AccountKey, allowed: Option<bool>| {
                published.lock().insert(name, allowed);
                ready(Ok::<(), Infallible>(()))
            }
        };

        let (requests, inbox) = mpsc::channel(4);
        let mut task = JoinSet::new();
        let reviewers = || Reviewers {
            own: fake.clone(),
            cluster: ClusterId::new("Kubernetes"),
            remotes: RemoteServers::default(),
        };
        task.spawn(run(reviewers(), inbox, publish.clone()));

        let interest = Arc::new(());
        let name = AccountKey {
            cluster: None,
            account: NamespacedName::new("edge", "gw"),
        };
        let known = || published.lock().get(&name).copied();

        ask(&requests, &interest).await;
        ask(&requests, &interest).await;
        assert_eq!(known(), Some(Some(true)));
        assert_eq!(fake.requests.load(Ordering::Relaxed), 1);
        drop(requests);
        task.join_next().await.unwrap().unwrap().unwrap();

        // An API server that does not answer revokes nothing; one that denies access does.
        let mut account = Account {
            interests: Vec::new(),
            waiting: Vec::new(),
            due: None,
            allowed: Some(true),
        };

        conclude(&name, &mut account, Err(ReviewError::TimedOut), &publish)
            .await
            .unwrap();
        assert_eq!(known(), Some(Some(true)));
        conclude(&name, &mut account, Ok(false), &publish)
            .await
            .unwrap();

        assert_eq!(known(), Some(Some(false)));

        // No stream needs it any more.
        let mut accounts = BTreeMap::from([(name.clone(), account)]);
        refresh_reviews(&mut accounts, &reviewers(), &mut Reviews::new(), &publish)
            .await
            .unwrap();
        assert!(accounts.is_empty());
        assert_eq!(known(), Some(None));
    }

    #[test]
    fn accounts_belong_to_the_own_cluster_unless_their_proxy_names_another() {
        let aliases = [(ClusterId::new("west-1"), ClusterId::new("west"))];
        let reviewers = Reviewers {
            own: Arc::new(Fake::default()),
            cluster: ClusterId::new("east"),
            remotes: RemoteServers::new(BTreeMap::from(aliases)),
        };

        for (named, cluster) in [
            ("", None),
            ("east", None),
            ("west", Some("west")),
            ("west-1", Some("west")),
        ] {
            let key = reviewers.account_key(named, NamespacedName::new("edge", "gw"));
            assert_eq!(key.cluster, cluster.map(ClusterId::new), "{named}");
        }
    }
}
