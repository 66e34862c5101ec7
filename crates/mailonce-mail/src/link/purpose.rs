//! What a link is for, told by its words and its address. Only links that carry a secret are for anything.

use crate::words::words;

words! {
    /// What a link is for.
    Purpose {
        /// Says that an address or an account is one's own.
        Confirm = "confirm",
        /// Signs in.
        SignIn = "sign_in",
        /// Sets a new password.
        Reset = "reset",
        /// Accepts an invitation.
        Invite = "invite",
    }
}

/// Words on a link, in lower case, the surest purpose first.
const WORDS: &[(Purpose, &[&str])] = &[
    (
        Purpose::Reset,
        &[
            "reset",
            "new password",
            "change password",
            "change your password",
            "recover",
            "zurücksetzen",
            "neues passwort",
            "réinitialis",
            "nouveau mot de passe",
            "restablec",
            "nueva contraseña",
            "redefin",
            "nova senha",
            "reimposta",
            "nuova password",
            "reinicia",
            "wachtwoord herstel",
            "opnieuw instellen",
            "wachtwoord wijzigen",
            "zresetuj",
            "nowe hasło",
            "ustaw hasło",
            "sıfırla",
            "yeni şifre",
            "сброс",
            "новый пароль",
            "восстанов",
            "リセット",
            "再設定",
            "重置",
            "重設",
            "重设",
            "재설정",
            "초기화",
            "إعادة تعيين",
            "كلمة مرور جديدة",
        ],
    ),
    (
        Purpose::SignIn,
        &[
            "sign in",
            "sign-in",
            "signin",
            "log in",
            "log-in",
            "login",
            "magic link",
            "einloggen",
            "anmelden",
            "se connecter",
            "connexion",
            "connectez",
            "iniciar sesión",
            "inicia sesión",
            "acceder",
            "entrar",
            "iniciar sessão",
            "fazer login",
            "accedi",
            "inloggen",
            "aanmelden",
            "zaloguj",
            "giriş yap",
            "oturum aç",
            "войти",
            "вход",
            "ログイン",
            "サインイン",
            "登录",
            "登錄",
            "登入",
            "로그인",
            "تسجيل الدخول",
        ],
    ),
    (
        Purpose::Confirm,
        &[
            "confirm",
            "verify",
            "verification",
            "activate",
            "validate",
            "complete registration",
            "complete sign",
            "finish sign",
            "bestätig",
            "verifizier",
            "aktivier",
            "freischalt",
            "vérifi",
            "valider",
            "validez",
            "activer",
            "activez",
            "verific",
            "activar",
            "activa ",
            "valida",
            "ativar",
            "ative",
            "conferma",
            "attiva",
            "bevestig",
            "verifieer",
            "activeer",
            "potwierdź",
            "potwierdz",
            "zweryfikuj",
            "aktywuj",
            "doğrula",
            "onayla",
            "etkinleştir",
            "подтверд",
            "активир",
            "確認",
            "認証",
            "有効化",
            "验证",
            "驗證",
            "确认",
            "確認",
            "激活",
            "啟用",
            "인증",
            "확인",
            "활성화",
            "تأكيد",
            "تحقق",
            "تفعيل",
        ],
    ),
    (
        Purpose::Invite,
        &[
            "accept invit",
            "accept the invit",
            "join",
            "einladung annehmen",
            "accepter l'invitation",
            "aceptar invit",
            "aceitar convite",
            "招待",
            "接受邀请",
        ],
    ),
];
/// Words in an address.
const PATHS: &[(Purpose, &[&str])] = &[
    (Purpose::Reset, &["reset", "recover", "new-password", "newpassword", "forgot", "password"]),
    (
        Purpose::SignIn,
        &["magic", "signin", "sign-in", "login", "log-in", "sso", "otp", "passwordless", "callback", "auth"],
    ),
    (Purpose::Confirm, &["confirm", "verify", "verif", "activat", "validate", "optin", "opt-in", "register", "signup"]),
    (Purpose::Invite, &["invite", "invitation", "join"]),
];
/// Links that are in every mail, and are never what an agent waits for.
const OTHER: &[&str] = &[
    "unsubscribe",
    "opt-out",
    "optout",
    "preferences",
    "privacy",
    "terms",
    "imprint",
    "impressum",
    "abmelden",
    "abbestellen",
    "désabonn",
    "désinscri",
    "cancelar suscripción",
    "darse de baja",
    "descadastr",
    "cancelar inscri",
    "disiscri",
    "uitschrijven",
    "afmelden",
    "wypisz",
    "abonelikten",
    "отписа",
    "配信停止",
    "退订",
    "取消订阅",
    "수신거부",
    "إلغاء الاشتراك",
    "view in browser",
    "im browser",
    "support",
    "help center",
    "contact us",
    "facebook.com",
    "twitter.com",
    "x.com/",
    "instagram.com",
    "linkedin.com",
    "youtube.com",
    "play.google.com",
    "apps.apple.com",
    "report",
    "not me",
    "wasn't me",
    "didn't request",
    "secure your account",
    "deny",
    "reject",
    "decline",
    "ablehnen",
];

/// The purpose and how sure it is. `before` are the words before a link in plain text.
pub(super) fn guess(url: &str, text: Option<&str>, before: &str) -> Option<(Purpose, u8)> {
    let address = url.to_lowercase();
    let place = address.split_once("://").map_or(address.as_str(), |(_, place)| place);
    let path = place.find(['/', '?']).map_or("", |at| &place[at..]);
    let words = text
        .map(str::to_lowercase)
        .filter(|text| !text.trim().is_empty() && !text.contains("://"))
        .unwrap_or_else(|| last_words(before));
    if OTHER.iter().any(|other| words.contains(other) || path.contains(other) || place.starts_with(other)) {
        return None;
    }
    let of = |table: &[(Purpose, &[&str])], words: &str| {
        table.iter().find(|(_, list)| list.iter().any(|word| words.contains(word))).map(|(purpose, _)| *purpose)
    };
    let (told, shown) = (of(WORDS, &words), of(PATHS, path));
    let purpose = told.or(shown)?;
    let sum = u8::from(told.is_some()) * 45 + u8::from(shown.is_some()) * 25 + if has_secret(url) { 30 } else { 0 };
    // Without a secret it is a door like any other.
    Some((purpose, if has_secret(url) { sum.min(98) } else { sum.min(40) }))
}

/// The sentence that leads to a link in plain text.
fn last_words(before: &str) -> String {
    let before = before.trim_end();
    let paragraph = before.rsplit("\n\n").next().unwrap_or_default();
    let start = paragraph.rsplit("://").next().unwrap_or_default();
    start.to_lowercase()
}

/// Whether the address carries something that cannot be guessed.
pub(crate) fn has_secret(url: &str) -> bool {
    const NAMES: &[&str] = &[
        "token",
        "code",
        "key",
        "otp",
        "ticket",
        "signature",
        "sig",
        "hash",
        "t",
        "k",
        "oobcode",
        "confirmation_token",
        "secret",
        "nonce",
        "jwt",
    ];
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let Some(at) = rest.find(['/', '?', '#']) else { return false };
    rest[at..].split(['/', '?', '&', '#', ';']).any(|piece| match piece.split_once('=') {
        Some((name, value)) => {
            value.len() >= 6 && NAMES.contains(&name.to_ascii_lowercase().as_str()) || is_secret(value)
        }
        None => is_secret(piece),
    })
}

/// Letters and digits without a meaning.
fn is_secret(piece: &str) -> bool {
    let plain = piece.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.%~+=".contains(&b));
    let digits = piece.bytes().filter(u8::is_ascii_digit).count();
    let letters = piece.bytes().filter(u8::is_ascii_alphabetic).count();
    let upper = piece.bytes().any(|b| b.is_ascii_uppercase()) && piece.bytes().any(|b| b.is_ascii_lowercase());
    plain
        && (piece.len() >= 8 && digits >= 2 && letters >= 2
            || piece.len() >= 16 && (digits >= 1 || upper) && !piece.contains('.'))
}
