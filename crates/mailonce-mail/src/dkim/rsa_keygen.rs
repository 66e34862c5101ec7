//! Generates an RSA key as PKCS#8.
//!
//! ring cannot generate RSA keys. The `rsa` crate can, but it includes signing code with a timing side channel. So the
//! primes come from crypto-primes, and ring validates the key before it is used.

use chacha20::{ChaCha20Rng, rand_core::SeedableRng as _};
use crypto_bigint::{NonZero, Odd, U1024, U2048};
use crypto_primes::{
    Flavor,
    hazmat::{SetBits, SmallFactorsSieveFactory},
    is_prime, sieve_and_find,
};

use super::der;

/// Size of each prime in bits.
const PRIME_BITS: u32 = 1024;
/// The public exponent.
const EXPONENT: u32 = 65_537;

/// Generates a 2048-bit RSA key as PKCS#8. The same seed gives the same key. `None` if crypto-primes fails, which does
/// not happen in practice.
pub(super) fn generate_rsa_2048(seed: [u8; 32]) -> Option<Vec<u8>> {
    let mut rng = ChaCha20Rng::from_seed(seed);
    loop {
        let (a, b) = (prime(&mut rng)?, prime(&mut rng)?);
        // ring expects the larger prime first. Equal primes, or a p-1 divisible by the exponent, are redrawn.
        if let Some(key) = encode_private_key(a.max(b), a.min(b)) {
            return Some(der::rsa_pkcs8(&key));
        }
    }
}

/// A prime with its two highest bits set, so that the product of two has the full length.
fn prime(rng: &mut ChaCha20Rng) -> Option<U1024> {
    let sieve = SmallFactorsSieveFactory::new(Flavor::Any, PRIME_BITS, SetBits::TwoMsb).ok()?;
    sieve_and_find(rng, sieve, |_, candidate| is_prime(Flavor::Any, candidate)).ok().flatten()
}

/// `RSAPrivateKey` (RFC 8017 A.1.2).
fn encode_private_key(p: U1024, q: U1024) -> Option<Vec<u8>> {
    let one = U1024::ONE;
    let (p1, q1) = (p.wrapping_sub(&one), q.wrapping_sub(&one));
    let n: U2048 = p.concatenating_mul(&q);
    let phi: U2048 = p1.concatenating_mul(&q1);
    let d = U2048::from(EXPONENT).invert_mod(&NonZero::new(phi).into_option()?).into_option()?;
    let d_p = d.rem(&NonZero::new(p1).into_option()?);
    let d_q = d.rem(&NonZero::new(q1).into_option()?);
    let q_inverse = q.invert_odd_mod(&Odd::new(p).into_option()?).into_option()?;
    Some(der::sequence(&[
        &der::integer(&[0]),
        &der::integer(n.to_be_bytes().as_slice()),
        &der::integer(&EXPONENT.to_be_bytes()),
        &der::integer(d.to_be_bytes().as_slice()),
        &der::integer(p.to_be_bytes().as_slice()),
        &der::integer(q.to_be_bytes().as_slice()),
        &der::integer(d_p.to_be_bytes().as_slice()),
        &der::integer(d_q.to_be_bytes().as_slice()),
        &der::integer(q_inverse.to_be_bytes().as_slice()),
    ]))
}
