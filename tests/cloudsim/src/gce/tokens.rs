//! Tokens: their accounts and expiry, and the endpoint that issues them.

use super::errors;
use super::world::World;
use crate::core::clock::later;
use crate::core::rest::{Call, Problem, Reply, query};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Tokens with their accounts and expiry times.
#[derive(Debug, Default)]
pub struct Tokens(BTreeMap<String, (String, Timestamp)>);

impl Tokens {
    /// The account of a valid token.
    pub(super) fn account(&self, token: &str, now: Timestamp) -> Option<String> {
        self.0.get(token).filter(|(_, ends)| *ends > now).map(|(account, _)| account.clone())
    }

    /// Invalidates all tokens.
    pub fn expire(&mut self) {
        self.0.clear();
    }
}

impl World {
    /// A new token of an account, with its lifetime in seconds.
    pub fn token(&mut self, account: &str) -> (String, u64) {
        let token = format!("ya29.{}", self.hex(40));
        let ends = later(self.now(), self.options.token_lifetime);
        self.tokens.0.insert(token.clone(), (account.to_owned(), ends));
        (token, self.options.token_lifetime.as_secs().saturating_sub(1))
    }
}

/// `POST /token`: a token for an assertion. The signature is not verified.
pub(super) fn grant(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let form = query(std::str::from_utf8(&call.body).unwrap_or_default());
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    if field("grant_type") != Some("urn:ietf:params:oauth:grant-type:jwt-bearer") {
        return Err(Problem::violation(400, "unsupported_grant_type", "Invalid grant_type"));
    }
    let account = issuer(world, field("assertion").unwrap_or_default())?;
    let (token, lifetime) = world.token(&account);
    Ok(Reply::json(200, &json!({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"})))
}

/// The issuer of an assertion that has all required claims.
fn issuer(world: &World, assertion: &str) -> Result<String, Problem> {
    let wrong = |text: &str| Problem::violation(400, "invalid_grant", text);
    let mut parts = assertion.split('.');
    let (head, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if parts.next().is_none_or(str::is_empty) || parts.next().is_some() {
        return Err(wrong("Bad Request"));
    }
    let part = |text: &str| unbase64(text).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let (head, claims) = part(head).zip(part(claims)).ok_or_else(|| wrong("Bad Request"))?;
    if head.get("alg").and_then(Value::as_str) != Some("RS256") {
        return Err(wrong("Invalid JWT Signature."));
    }
    let second = |name: &str| claims.get(name).and_then(Value::as_i64).unwrap_or_default();
    let now = world.now().as_second();
    let in_time = second("iat") <= now + 300 && second("exp") > now - 300 && second("exp") - second("iat") <= 3600;
    if !in_time {
        return Err(wrong(
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.",
        ));
    }
    let scoped = ["scope", "target_audience"].iter().any(|name| claims.get(*name).is_some());
    if !scoped {
        return Err(Problem::violation(400, "invalid_scope", "Invalid OAuth scope or ID token audience provided."));
    }
    claims
        .get("iss")
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| wrong("Invalid issuer: Not a valid email."))
}

/// An error in the format of the endpoint.
pub(super) fn render(problem: &Problem) -> Reply {
    if problem.status >= 500 {
        return errors::render(problem);
    }
    Reply::json(problem.status, &json!({"error": problem.code, "error_description": problem.message}))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |number, at| number << 8 | part.get(at).copied().map_or(0, u32::from));
        for digit in 0..4 {
            let index = usize::try_from(number >> (18 - 6 * digit) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).filter(|_| digit <= part.len());
            text.push(letter.map_or('=', |letter| char::from(*letter)));
        }
    }
    text
}

/// Decodes base64 in either alphabet, with or without padding.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut number, mut bits) = (0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        let byte = match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte => byte,
        };
        let digit = ALPHABET.iter().position(|letter| *letter == byte)?;
        number = number << 6 | u32::try_from(digit).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(number >> bits & 255).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_written_and_read() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("fooba", "Zm9vYmE=")] {
            assert_eq!(base64(plain.as_bytes()), text);
            assert_eq!(unbase64(text).unwrap(), plain.as_bytes());
        }
        assert_eq!(unbase64("-_8").unwrap(), [251, 255]);
        assert_eq!(unbase64("a b"), None);
    }
}
