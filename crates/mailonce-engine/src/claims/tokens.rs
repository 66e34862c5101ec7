//! Tokens of holders and keys for other systems, derived from the install secret.
//!
//! A token contains its fence and the time of its lease, and a MAC over them. So a claim verifies every token that it
//! ever issued without storing one, and a copy of the ledger contains none.

use mailonce_core::{
    claims::{Claim, ClaimToken},
    id::{ClaimId, TeamId},
    key::InstallSecret,
    time::Time,
};

use crate::runtime::hex::hex;

const PREFIX: &str = "ct_";

fn mac(secret: &InstallSecret, (team, id): (TeamId, ClaimId), token: ClaimToken) -> String {
    let parts: [&[u8]; 4] =
        [team.0.as_bytes(), id.0.as_bytes(), &token.fence.to_be_bytes(), &token.issued_at.0.to_be_bytes()];
    hex(&secret.mac("claim-token", &parts)[..20])
}

/// The token as its holder gets it.
pub(super) fn format(secret: &InstallSecret, claim: (TeamId, ClaimId), token: ClaimToken) -> String {
    format!("{PREFIX}{}_{}_{}", token.fence, token.issued_at.0, mac(secret, claim, token))
}

/// Verifies a token. `None` when this claim never issued it.
pub(super) fn verify(secret: &InstallSecret, claim: (TeamId, ClaimId), text: &str) -> Option<ClaimToken> {
    let mut parts = text.strip_prefix(PREFIX)?.splitn(3, '_');
    let (fence, issued_at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let token = ClaimToken { fence, issued_at: Time(issued_at) };
    let (given, expected) = (parts.next()?.as_bytes(), mac(secret, claim, token));
    // Compares all digits, so that the time does not tell how many of them are right.
    let differs = given.iter().zip(expected.as_bytes()).fold(0, |bits, (a, b)| bits | (a ^ b));
    (given.len() == expected.len() && differs == 0).then_some(token)
}

/// The idempotency key for the system that performs the side effect. It is the same for every holder of the claim, also
/// after a restore, and another one once the claim was forgotten.
pub(super) fn downstream_key(secret: &InstallSecret, claim: &Claim) -> String {
    let parts: [&[u8]; 3] = [claim.team.0.as_bytes(), &claim.key_hash().0, &claim.bind_number.to_be_bytes()];
    format!("cl_{}", hex(&secret.mac("claim-downstream", &parts)[..20]))
}

/// The hash of a holder's secret, as the ledger stores it.
pub(super) fn holder_hash(secret: &InstallSecret, team: TeamId, holder: &str) -> String {
    hex(&secret.mac("claim-holder", &[team.0.as_bytes(), holder.as_bytes()])[..20])
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn only_an_unchanged_token_of_the_same_claim_is_accepted() {
        let secret = InstallSecret([7; 32]);
        let claim = |n| (TeamId(Uuid::from_u128(1)), ClaimId(Uuid::from_u128(n)));
        let token = ClaimToken { fence: 3, issued_at: Time(99) };
        let text = format(&secret, claim(1), token);
        assert_eq!(verify(&secret, claim(1), &text), Some(token));
        assert_eq!(verify(&secret, claim(2), &text), None);
        assert_eq!(verify(&InstallSecret([8; 32]), claim(1), &text), None);
        for bad in [&text[..text.len() - 1], &text.replace("ct_3", "ct_4"), &format!("{text}0"), "", "ct_3_99_", "ct__"]
        {
            assert_eq!(verify(&secret, claim(1), bad), None, "{bad}");
        }
    }
}
