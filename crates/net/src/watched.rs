//! Values that others watch.

use tokio::sync::watch;

/// Sends a value if it differs from the last one, so that receivers wake up for changes only.
pub fn send_if_changed<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|last| {
        let differs = *last != value;
        *last = value;
        differs
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_value_wakes_nobody() {
        let (sender, receiver) = watch::channel("one");
        send_if_changed(&sender, "one");
        assert!(!receiver.has_changed().unwrap());
        send_if_changed(&sender, "two");
        assert!(receiver.has_changed().unwrap());
        assert_eq!(*receiver.borrow(), "two");
    }
}
