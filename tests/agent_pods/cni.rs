//! istio-cni's side of the ZDS socket: it gives ztunnel the pods of the node, each with a file
//! descriptor of its network namespace.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, socket_with,
};

/// How long ztunnel may take to connect, and to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `istio.workload.zds.WorkloadInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    service_account: String,
}

/// A pod that ztunnel is to take on; a file descriptor of its namespace goes with it.
#[derive(Clone, PartialEq, prost::Message)]
struct AddWorkload {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(message, optional, tag = "2")]
    workload_info: Option<WorkloadInfo>,
}

/// A pod that is gone.
#[derive(Clone, PartialEq, prost::Message)]
struct DelWorkload {
    #[prost(string, tag = "2")]
    uid: String,
}

/// All pods have been told.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct SnapshotSent {}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Payload {
    #[prost(message, tag = "1")]
    Add(AddWorkload),
    #[prost(message, tag = "2")]
    Del(DelWorkload),
    #[prost(message, tag = "3")]
    SnapshotSent(SnapshotSent),
}

/// What the CNI says.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadRequest {
    #[prost(oneof = "Payload", tags = "1, 2, 3")]
    payload: Option<Payload>,
}

/// That ztunnel has done it, or why not.
#[derive(Clone, PartialEq, prost::Message)]
struct Ack {
    #[prost(string, tag = "1")]
    error: String,
}

/// What ztunnel says.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadResponse {
    #[prost(message, optional, tag = "1")]
    ack: Option<Ack>,
}

/// A pod of the node.
#[derive(Clone, Debug)]
pub(crate) struct Enrolled {
    /// Its name, which is its UID here, too.
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    pub(crate) account: String,
    /// Its namespace of the network.
    pub(crate) space: String,
}

/// The socket, and ztunnel's connection to it.
pub(crate) struct Cni {
    listener: OwnedFd,
    connection: Option<OwnedFd>,
}

impl Cni {
    /// Listens where ztunnel will ask.
    pub(crate) fn listen(path: &Path) -> Result<Self> {
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 1)?;
        set_socket_timeout(&listener, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self {
            listener,
            connection: None,
        })
    }

    /// Waits for ztunnel, and tells it of all pods.
    pub(crate) fn enroll(&mut self, pods: &[Enrolled]) -> Result<()> {
        let connection =
            accept_with(&self.listener, SocketFlags::CLOEXEC).context("ztunnel did not connect")?;
        set_socket_timeout(&connection, Timeout::Recv, Some(TIMEOUT))?;
        self.connection = Some(connection);
        ensure!(!self.receive()?.is_empty(), "ztunnel says who it is first");

        for pod in pods {
            let info = WorkloadInfo {
                name: pod.name.clone(),
                namespace: pod.namespace.to_owned(),
                service_account: pod.account.clone(),
            };
            let namespace = File::open(Path::new("/run/netns").join(&pod.space))?;
            let add = AddWorkload {
                uid: pod.name.clone(),
                workload_info: Some(info),
            };
            self.say(Payload::Add(add), Some(namespace.as_fd()))
                .with_context(|| pod.name.clone())?;
        }

        self.say(Payload::SnapshotSent(SnapshotSent {}), None)
    }

    /// Tells it that a pod is gone.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.say(
            Payload::Del(DelWorkload {
                uid: name.to_owned(),
            }),
            None,
        )
    }

    /// Says something and waits until ztunnel has done it.
    fn say(&self, payload: Payload, namespace: Option<BorrowedFd<'_>>) -> Result<()> {
        let bytes = WorkloadRequest {
            payload: Some(payload),
        }
        .encode_to_vec();
        let files: Vec<_> = namespace.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);

        if !files.is_empty() {
            ensure!(
                control.push(SendAncillaryMessage::ScmRights(&files)),
                "no room for a file descriptor"
            );
        }

        sendmsg(
            self.connection()?,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;

        let answer = WorkloadResponse::decode(self.receive()?.as_slice())?
            .ack
            .context("no acknowledgement")?;
        ensure!(answer.error.is_empty(), "ztunnel: {}", answer.error);

        Ok(())
    }

    /// The next that ztunnel says.
    fn receive(&self) -> Result<Vec<u8>> {
        let mut buffer = [0_u8; 4096];
        let (_, length) = recv(self.connection()?, &mut buffer[..], RecvFlags::empty())
            .context("ztunnel is silent")?;
        Ok(buffer[..length].to_vec())
    }

    fn connection(&self) -> Result<&OwnedFd> {
        self.connection.as_ref().context("ztunnel is not connected")
    }
}
