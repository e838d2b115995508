//! Requests for URLs as Go's `net/http` sends them, which istiod uses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Request, Uri, request};

use navarch_base::percent_encoding;

/// The user name or password of a URL is not valid percent-encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user name or password of the URL is not valid percent-encoding")]
pub struct UserInfoError;

/// A GET request. `Host` is the host, with the port if the URL has one; a user name and password are
/// sent as `Authorization: Basic`, in a header that `Debug` hides.
///
/// # Errors
/// If the user name or password cannot be decoded.
pub fn get(uri: &Uri) -> Result<request::Builder, UserInfoError> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let authority = uri.authority().map_or("", Authority::as_str);
    let Some((user_info, host)) = authority.rsplit_once('@') else {
        return Ok(Request::get(path).header(HOST, authority));
    };

    let credentials = basic_credentials(user_info)?;
    Ok(Request::get(path)
        .header(HOST, host)
        .header(AUTHORIZATION, credentials))
}

/// The value of `Authorization` for a URL's `user:password` or `user`.
fn basic_credentials(user_info: &str) -> Result<HeaderValue, UserInfoError> {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let mut pair = percent_encoding::decoded(user).ok_or(UserInfoError)?;
    pair.push(b':');
    pair.extend(percent_encoding::decoded(password).ok_or(UserInfoError)?);

    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
        .expect("base64 is valid in a header");
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str) -> Request<()> {
        let builder = get(&url.parse().unwrap()).unwrap();
        builder.body(()).unwrap()
    }

    #[test]
    fn user_information_is_sent_as_credentials_and_not_in_the_host() {
        for (url, host, credentials) in [
            ("https://host/keys?a=b@c", "host", None),
            ("https://u:p@host:8443/keys", "host:8443", Some("u:p")),
            ("https://u@[::1]:80/", "[::1]:80", Some("u:")),
            ("https://u:p:q@host", "host", Some("u:p:q")),
            ("https://u%3Av:p%40q+r@host", "host", Some("u:v:p@q+r")),
        ] {
            let request = request(url);
            assert_eq!(request.headers()[HOST], host, "{url}");

            let expected = credentials.map(|pair| format!("Basic {}", STANDARD.encode(pair)));
            let sent = request.headers().get(AUTHORIZATION);
            let sent = sent.map(|value| value.to_str().unwrap());
            assert_eq!(sent, expected.as_deref(), "{url}");
        }

        assert_eq!(request("https://u:p@host/keys?a=b").uri(), "/keys?a=b");
    }

    #[test]
    fn a_password_is_neither_in_the_debug_output_nor_in_the_error() {
        let shown = format!("{:?}", request("https://u:secret@host/"));
        assert!(!shown.contains("secret"), "{shown}");
        assert!(!shown.contains(&STANDARD.encode("u:secret")), "{shown}");

        let error = get(&"https://u:secret%zz@host/".parse().unwrap()).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
