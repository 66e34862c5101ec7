"""Writes corpus.json: mails with the code and the link that an agent should get from them, or none.

Run it by hand when a trap is added; the tests read only what it wrote. The same mails come out every time.
"""

import json
import pathlib
import random

dice = random.Random(20261115)
mails = []


def digits(n):
    while True:
        text = "".join(dice.choice("0123456789") for _ in range(n))
        if not text.startswith(("19", "20", "0")):
            return text


def token():
    return "".join(dice.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(24))


def add(lang, trap, subject, text=None, html=None, code=None, link=None, sender="no-reply@acme.example"):
    mails.append({k: v for k, v in dict(lang=lang, trap=trap, sender=sender, subject=subject, text=text, html=html, code=code, link=link).items() if v is not None})


# One voice per language: subject, sentence with the code, code alone, code first, do not share, expiry, order, phone,
# promo, confirm link, reset link, unsubscribe.
VOICES = {
    "en": ("Your Acme verification code", "Your verification code is {c}.", "Use this code to sign in to Acme:", "{c} is your Acme verification code.", "Never share this code with anyone.", "It expires in 10 minutes.", "Your order 4471982 has shipped. Order number: {n}", "Questions? Call 1-800-555-{p}.", "Use promo code {n} for 20% off.", "Confirm your email address", "Reset your password", "Unsubscribe"),
    "de": ("Ihr Bestätigungscode", "Ihr Bestätigungscode lautet {c}.", "Geben Sie diesen Sicherheitscode ein:", "{c} ist Ihr Acme-Code.", "Geben Sie diesen Code nicht weiter.", "Er ist 10 Minuten gültig.", "Ihre Bestellung wurde versandt. Bestellnummer: {n}", "Fragen? Telefon 030 5550{p}.", "Mit dem Rabattcode {n} sparen Sie 20 %.", "E-Mail-Adresse bestätigen", "Passwort zurücksetzen", "Abmelden vom Newsletter"),
    "fr": ("Votre code de vérification", "Votre code de vérification est {c}.", "Saisissez ce code pour vous connecter :", "{c} est votre code de sécurité Acme.", "Ne partagez jamais ce code.", "Il expire dans 10 minutes.", "Votre commande est en route. Numéro de commande : {n}", "Téléphone : 01 55 50 {p}", "Code promo {n} : 20 % de réduction.", "Confirmer mon adresse e-mail", "Réinitialiser le mot de passe", "Se désabonner"),
    "es": ("Tu código de verificación", "Tu código de verificación es {c}.", "Introduce este código para iniciar sesión:", "{c} es tu código de seguridad de Acme.", "No compartas este código con nadie.", "Caduca en 10 minutos.", "Tu pedido va en camino. Número de pedido: {n}", "Teléfono: 91 555 {p}", "Usa el código promocional {n} y ahorra.", "Confirmar mi correo", "Restablecer contraseña", "Darse de baja"),
    "pt": ("Seu código de verificação", "Seu código de verificação é {c}.", "Digite este código para entrar:", "{c} é o seu código de segurança Acme.", "Não compartilhe este código com ninguém.", "Ele expira em 10 minutos.", "Seu pedido foi enviado. Código de rastreio: {n}", "Telefone: 11 5555-{p}", "Use o código de desconto {n} hoje.", "Confirmar e-mail", "Redefinir senha", "Cancelar inscrição"),
    "it": ("Il tuo codice di verifica", "Il tuo codice di verifica è {c}.", "Inserisci questo codice per accedere:", "{c} è il tuo codice di sicurezza Acme.", "Non condividere questo codice con nessuno.", "Scade tra 10 minuti.", "Il tuo ordine è stato spedito. Numero ordine: {n}", "Telefono: 06 5550 {p}", "Usa il codice sconto {n} entro domani.", "Conferma indirizzo email", "Reimposta la password", "Annulla iscrizione (disiscriviti)"),
    "nl": ("Je verificatiecode", "Je verificatiecode is {c}.", "Gebruik deze code om in te loggen:", "{c} is je Acme-beveiligingscode.", "Deel deze code met niemand.", "De code is 10 minuten geldig.", "Je bestelling is verzonden. Bestelnummer: {n}", "Telefoon: 020 555 {p}", "Gebruik kortingscode {n} voor 20% korting.", "Bevestig je e-mailadres", "Wachtwoord herstellen", "Uitschrijven"),
    "pl": ("Twój kod weryfikacyjny", "Twój kod weryfikacyjny to {c}.", "Wpisz ten kod, aby się zalogować:", "{c} to Twój kod bezpieczeństwa Acme.", "Nie udostępniaj tego kodu nikomu.", "Wygaśnie za 10 minut.", "Zamówienie zostało wysłane. Numer zamówienia: {n}", "Telefon: 22 555 {p}", "Użyj: kod rabatowy {n} na zakupy.", "Potwierdź adres e-mail", "Zresetuj hasło", "Wypisz się"),
    "sv": ("Din verifieringskod", "Din verifieringskod är {c}.", "Ange den här koden för att logga in:", "{c} är din säkerhetskod hos Acme.", "Dela inte koden med någon.", "Den gäller i 10 minuter.", "Din beställning har skickats. Ordernummer: {n}", "Frågor? Telefon 08-555 {p}.", "Använd rabattkoden {n} och spara 20 %.", "Bekräfta din e-postadress", "Återställ lösenordet", "Avsluta prenumerationen"),
    "tr": ("Doğrulama kodunuz", "Doğrulama kodunuz: {c}.", "Giriş yapmak için bu kodu girin:", "{c} Acme doğrulama kodunuz.", "Bu kodu kimseyle paylaşmayın.", "10 dakika içinde sona erer.", "Siparişiniz kargoda. Sipariş numarası: {n}", "Telefon: 0212 555 {p}", "İndirim kodu {n} ile kazanın.", "E-postanızı doğrulayın", "Şifreyi sıfırla", "Abonelikten çık"),
    "ru": ("Ваш код подтверждения", "Ваш код подтверждения: {c}.", "Введите этот код для входа:", "{c} — ваш код Acme.", "Никому не сообщайте код.", "Срок действия 10 минут.", "Заказ отправлен. Номер заказа: {n}", "Телефон: 495 555-{p}", "Промокод {n} на скидку 20%.", "Подтвердить адрес", "Сбросить пароль", "Отписаться"),
    "ja": ("認証コードのお知らせ", "認証コードは{c}です。", "次の確認コードを入力してください：", "{c} はAcmeの認証コードです。", "このコードを他人に教えないでください。", "有効期限は10分です。", "ご注文を発送しました。注文番号：{n}", "電話番号：03-5555-{p}", "クーポンコード {n} で20%オフ。", "メールアドレスを確認する", "パスワードを再設定", "配信停止"),
    "zh": ("您的验证码", "您的验证码是{c}，请勿告诉他人。", "请输入以下验证码：", "{c} 是您的Acme验证码。", "请勿将验证码告诉任何人。", "10分钟内有效。", "您的订单已发货。订单号：{n}", "客服电话：010-5555{p}", "使用优惠码 {n} 立减。", "验证邮箱", "重置密码", "取消订阅"),
    "ko": ("인증번호 안내", "인증번호는 {c}입니다.", "아래 인증 코드를 입력해 주세요:", "{c} 는 Acme 인증 코드입니다.", "인증번호를 타인에게 알려주지 마세요.", "10분 동안 유효합니다.", "주문하신 상품이 발송되었습니다. 주문번호: {n}", "고객센터 전화: 02-555-{p}", "쿠폰 코드 {n} 으로 할인받으세요.", "이메일 인증하기", "비밀번호 재설정", "수신거부"),
    "ar": ("رمز التحقق الخاص بك", "رمز التحقق الخاص بك هو {c}.", "أدخل هذا الرمز لتسجيل الدخول:", "{c} هو رمز التحقق الخاص بك.", "لا تشارك هذا الرمز مع أي شخص.", "تنتهي صلاحيته خلال 10 دقائق.", "تم شحن طلبك. رقم الطلب: {n}", "الهاتف: 555 {p}", "استخدم رمز الخصم {n} اليوم.", "تأكيد البريد الإلكتروني", "إعادة تعيين كلمة المرور", "إلغاء الاشتراك"),
}

# More of each language: activate, sign in, magic link, invoice, parcel, ticket, meeting, postcode, error.
MORE = {
    "en": ("Activate your account", "Sign in to Acme", "Open your magic link", "Invoice number: {n}. Amount due: 1,284.50 EUR.", "Your parcel is on its way. Tracking number: {n}", "We received your request. Ticket number: {n}", "Join the meeting. Meeting ID: {n}", "We deliver to postcode 94043 from Monday.", "The import failed with error code {n}."),
    "de": ("Konto aktivieren", "Bei Acme anmelden", "Magischen Link öffnen", "Rechnungsnummer: {n}. Betrag: 1.284,50 EUR.", "Ihr Paket ist unterwegs. Sendungsnummer: {n}", "Wir haben Ihre Anfrage erhalten. Ticketnummer: {n}", "Zum Meeting. Meeting-ID: {n}", "Wir liefern ab Montag in die Postleitzahl 94043.", "Der Import ist fehlgeschlagen. Fehlercode: {n}"),
    "fr": ("Activer mon compte", "Se connecter à Acme", "Ouvrir mon lien magique", "Numéro de facture : {n}. Montant : 1 284,50 EUR.", "Votre colis est en route. Numéro de suivi : {n}", "Nous avons reçu votre demande. Numéro de ticket : {n}", "Rejoindre la réunion. ID de réunion : {n}", "Nous livrons au code postal 94043 dès lundi.", "L'import a échoué. Code d'erreur : {n}"),
    "es": ("Activar mi cuenta", "Iniciar sesión en Acme", "Abrir el enlace mágico", "Número de factura: {n}. Importe: 1.284,50 EUR.", "Tu paquete está en camino. Número de seguimiento: {n}", "Hemos recibido tu solicitud. Número de ticket: {n}", "Únete a la reunión. ID de reunión: {n}", "Entregamos en el código postal 94043 desde el lunes.", "La importación falló. Código de error: {n}"),
    "pt": ("Ativar minha conta", "Entrar na Acme", "Abrir o link mágico", "Número da fatura: {n}. Valor: 1.284,50 EUR.", "Sua encomenda está a caminho. Número de rastreamento: {n}", "Recebemos seu pedido de suporte. Número do chamado: {n}", "Participe da reunião. ID da reunião: {n}", "Entregamos no código postal 94043 desde segunda.", "A importação falhou. Código de erro: {n}"),
    "it": ("Attiva il tuo account", "Accedi ad Acme", "Apri il link magico", "Numero fattura: {n}. Importo: 1.284,50 EUR.", "Il tuo pacco è in arrivo. Numero di spedizione: {n}", "Abbiamo ricevuto la richiesta. Numero ticket: {n}", "Partecipa alla riunione. ID riunione: {n}", "Consegniamo nel codice postale 94043 da lunedì.", "Importazione fallita. Codice errore: {n}"),
    "nl": ("Activeer je account", "Inloggen bij Acme", "Open je magische link", "Factuurnummer: {n}. Bedrag: 1.284,50 EUR.", "Je pakket is onderweg. Trackingnummer: {n}", "We hebben je vraag ontvangen. Ticketnummer: {n}", "Neem deel. Vergader-ID: {n}", "We bezorgen vanaf maandag in postcode 94043.", "De import is mislukt. Foutcode: {n}"),
    "pl": ("Aktywuj konto", "Zaloguj się do Acme", "Otwórz magiczny link", "Numer faktury: {n}. Kwota: 1 284,50 EUR.", "Paczka jest w drodze. Numer przesyłki: {n}", "Otrzymaliśmy zgłoszenie. Numer zgłoszenia: {n}", "Dołącz do spotkania. ID spotkania: {n}", "Dostarczamy pod kod pocztowy 94043 od poniedziałku.", "Import nie powiódł się. Kod błędu: {n}"),
    "sv": ("Aktivera ditt konto", "Logga in på Acme", "Öppna din magiska länk", "Fakturanummer: {n}. Belopp: 1 284,50 EUR.", "Ditt paket är på väg. Spårningsnummer: {n}", "Vi har tagit emot ditt ärende. Ärendenummer: {n}", "Anslut till mötet. Mötes-ID: {n}", "Vi levererar till postnummer 94043 från måndag.", "Importen misslyckades. Felkod: {n}"),
    "tr": ("Hesabınızı etkinleştirin", "Acme'de oturum aç", "Sihirli bağlantıyı aç", "Fatura numarası: {n}. Tutar: 1.284,50 EUR.", "Kargonuz yolda. Takip numarası: {n}", "Talebinizi aldık. Talep numarası: {n}", "Toplantıya katılın. Toplantı kimliği: {n}", "Pazartesiden itibaren posta kodu 94043 için teslimat yapıyoruz.", "İçe aktarma başarısız. Hata kodu: {n}"),
    "ru": ("Активировать аккаунт", "Войти в Acme", "Открыть волшебную ссылку", "Номер счёта: {n}. Сумма: 1284,50 EUR.", "Посылка в пути. Трек-номер: {n}", "Мы получили обращение. Номер обращения: {n}", "Подключайтесь к встрече. ID встречи: {n}", "Доставляем по индексу 94043 с понедельника.", "Импорт не удался. Код ошибки: {n}"),
    "ja": ("アカウントを有効化する", "Acmeにログイン", "マジックリンクを開く", "請求書番号：{n}。金額：1,284円。", "荷物を発送しました。追跡番号：{n}", "お問い合わせを受け付けました。受付番号：{n}", "会議に参加してください。ミーティングID：{n}", "月曜から郵便番号 94043 に配達します。", "取り込みに失敗しました。エラーコード：{n}"),
    "zh": ("激活账户", "登录 Acme", "打开魔法链接", "发票号码：{n}。金额：1284.50元。", "您的包裹正在派送。快递单号：{n}", "我们已收到您的请求。工单号：{n}", "加入会议。会议号：{n}", "周一起可配送至邮编 94043。", "导入失败。错误代码：{n}"),
    "ko": ("계정 활성화", "Acme 로그인", "매직 링크 열기", "청구서 번호: {n}. 금액: 1,284원.", "택배가 배송 중입니다. 운송장 번호: {n}", "문의가 접수되었습니다. 접수번호: {n}", "회의에 참여하세요. 회의 ID: {n}", "월요일부터 우편번호 94043 지역에 배송합니다.", "가져오기에 실패했습니다. 오류 코드: {n}"),
    "ar": ("تفعيل الحساب", "تسجيل الدخول إلى Acme", "افتح الرابط السحري", "رقم الفاتورة: {n}. المبلغ: 1284 يورو.", "طردك في الطريق. رقم التتبع: {n}", "استلمنا طلبك. رقم التذكرة: {n}", "انضم إلى الاجتماع. معرف الاجتماع: {n}", "نوصل إلى الرمز البريدي 94043 من يوم الاثنين.", "فشل الاستيراد. رمز الخطأ: {n}"),
}


def mixed():
    """Letters and digits, as no word and no year has them."""
    return "".join(dice.choice("2345679") if i % 2 else dice.choice("BCDFGHJKMNPQRTVWXZ") for i in range(6))


def fill(text, c=None):
    return text.replace("{c}", c or "").replace("{n}", digits(7)).replace("{p}", digits(4))


def page(*blocks):
    return "<html><head><style>body{color:#202123}</style><title>Acme 998877</title></head><body>" + "".join(blocks) + "</body></html>"


for lang, v in VOICES.items():
    subject, says, use, first, secret, expiry, order, phone, promo, confirm, reset, bye = v
    tail = f"{secret} {expiry}\n\n{fill(phone)}\nAcme Inc., 1600 Main Street, Springfield 94043\n© 2026 Acme"
    plain = subject
    c = digits(6)
    add(lang, "sentence", subject, f"{fill(says, c)}\n{tail}", code=c)
    c = digits(6)
    add(lang, "own line", subject, f"{use}\n\n{c}\n\n{tail}", code=c)
    c = digits(4)
    add(lang, "four digits", subject, f"{use}\n\n{c}\n\n{tail}", code=c)
    c = digits(8)
    add(lang, "eight digits", subject, f"{fill(says, c)}\n\n{tail}", code=c)
    c = digits(6)
    add(lang, "code first", "Acme", f"{fill(first, c)}\n\n{tail}", code=c)
    c = digits(6)
    add(lang, "subject only", fill(first, c), f"{secret} {expiry}", code=c)
    c = digits(6)
    add(lang, "grouped", subject, f"{use}\n\n{c[:3]} {c[3:]}\n\n{tail}", code=c)
    c = digits(6)
    add(lang, "dashed", subject, f"{use} {c[:3]}-{c[3:]}\n\n{tail}", code=c)
    c = digits(6)
    wide = "".join(chr(0xFF10 + int(d)) for d in c)
    add(lang, "full width", subject, f"{use}\n\n{wide}\n\n{tail}", code=c)
    c = digits(6)
    add(lang, "order beside code", subject, f"{fill(says, c)}\n\n{fill(order)}\n{tail}", code=c)
    c = digits(6)
    add(lang, "html only", subject, html=page(f"<p>{use}</p><h1 style='color:#202123'>{c}</h1><p>{secret}</p><p>{fill(phone)}</p>"), code=c)
    c = digits(6)
    spans = "".join(f"<span style='padding:4px'>{d}</span>" for d in c)
    add(lang, "html spans", subject, html=page(f"<p>{use}</p><div>{spans}</div><p>{secret}</p>"), code=c)
    c = digits(6)
    cells = "".join(f"<td>{d}</td>" for d in c)
    add(lang, "html cells", subject, html=page(f"<p>{use}</p><table><tr>{cells}</tr></table><p>{secret}</p>"), code=c)
    c, old = digits(6), digits(6)
    add(lang, "hidden decoy", subject, html=page(f"<div style='display:none'>{fill(says, old)}</div><p>{fill(says, c)}</p><img src='https://t.acme.example/{digits(8)}.gif' width=1 height=1>"), code=c)
    c, old = digits(6), digits(6)
    add(lang, "quoted older code", "Re: " + subject, f"{fill(says, c)}\n\nOn 1 Jan 2026 at 10:00, Acme <a@acme.example> wrote:\n> {fill(says, old)}\n> {secret}", code=c)
    add(lang, "quoted only", "Re: " + subject, f"OK!\n\nOn 1 Jan 2026 at 10:00, Acme <a@acme.example> wrote:\n> {fill(says, digits(6))}")
    add(lang, "order", "Acme", f"{fill(order)}\n{fill(phone)}\n\n© 2026 Acme")
    add(lang, "promo", "Acme", f"{fill(promo)}\n{fill(phone)}\n\n© 2026 Acme")
    add(lang, "warning only", "Acme", f"{secret} {expiry}\n{fill(phone)}\n1600 Main Street, Springfield 94043\n© 2026 Acme")
    add(lang, "two codes", subject, f"{fill(says, digits(6))}\n\n{fill(says, digits(6))}")
    url = f"https://acme.example/verify?token={token()}"
    add(lang, "confirm link", confirm, html=page(f"<p>Acme</p><a href='{url}'>{confirm}</a><p><a href='https://acme.example/unsubscribe/{token()}'>{bye}</a></p>"), link=url)
    url = f"https://acme.example/password/reset/{token()}"
    add(lang, "reset link", reset, html=page(f"<a href='{url}'>{reset}</a><p><a href='https://acme.example/help'>Help</a></p>"), link=url)
    url = f"https://acme.example/u/{token()}"
    add(lang, "link by words", confirm, html=page(f"<a href='{url}'><b>{confirm}</b></a>"), link=url)
    add(lang, "unsubscribe only", "Acme", html=page(f"<p>{fill(order)}</p><a href='https://acme.example/unsubscribe?token={token()}'>{bye}</a>"))

for lang, (activate, enter, magic, invoice, parcel, ticket, meeting, postcode, error) in MORE.items():
    subject, says, use, first, secret, expiry, order, phone, promo, confirm, reset, bye = VOICES[lang]
    c = mixed()
    add(lang, "letters and digits", subject, f"{use}\n\n{c}\n\n{secret} {expiry}", code=c)
    c = digits(6)
    other = "".join(chr(0x0660 + int(d)) for d in c)
    add(lang, "arabic digits", subject, f"{use}\n\n{other}\n\n{secret} {expiry}", code=c)
    c = digits(6)
    other = "".join(chr(0x0966 + int(d)) for d in c)
    add(lang, "devanagari digits", subject, fill(says, other) + f"\n\n{secret}", code=c)
    c = digits(6)
    add(lang, "tags", subject, html=page(f"<p>{use}</p><p><b>{c[:2]}</b><i>{c[2:4]}</i><font color='#111'>{c[4:]}</font></p><p>{secret}</p>"), code=c)
    c = digits(6)
    add(lang, "origin bound", "Acme", f"{secret}\n\n@acme.example #{c}", code=c)
    url = f"https://acme.example/activate/{token()}"
    add(lang, "activate link", activate, html=page(f"<a href='{url}'>{activate}</a><p>{fill(phone)}</p>"), link=url)
    url = f"https://acme.example/login?token={token()}"
    add(lang, "sign-in link", enter, html=page(f"<a href='{url}'>{enter}</a><p><a href='https://acme.example/help/{digits(6)}'>Help</a></p>"), link=url)
    url = f"https://acme.example/magic/{token()}"
    add(lang, "magic link", enter, f"{magic}:\n{url}\n\n{expiry}\n{fill(phone)}", link=url)
    for trap, text in [("invoice", invoice), ("parcel", parcel), ("ticket", ticket), ("meeting", meeting), ("postcode", postcode), ("error", error)]:
        add(lang, trap, "Acme", f"{fill(text)}\n{fill(phone)}\n\n© 2026 Acme")

EN = [
    # trap, subject, text, code
    ("google prefix", "Google verification code", "G-553201 is your Google verification code.", "553201"),
    ("steam", "Your Steam account", "Here is the Steam Guard code you need to login:\n\nTF35D\n\nThis email was generated because of a login attempt from 203.0.113.7.", "TF35D"),
    ("dashed letters", "Confirm", "Your confirmation code: 84A-KMN\n\nEnter it where you started.", "84AKMN"),
    ("device code", "Device sign-in", "Enter this code on your device: WDJB-MJHT", "WDJBMJHT"),
    ("origin bound", "Acme", "Your login.\n\n@acme.example #774102", "774102"),
    ("trailing dot", "Sign in", "Your one-time passcode is 163406.", "163406"),
    ("brackets", "Sign in", "Your code [731904] is ready.", "731904"),
    ("stars", "Sign in", "Your login code: *731904*", "731904"),
    ("quotes", "Sign in", 'Use "731904" as your verification code.', "731904"),
    ("long sentence", "Sign-in code", "Use the following code to finish signing in to your account on a new device: 731904", "731904"),
    ("code then expiry", "Sign in", "Your OTP is 731904 and is valid for 15 minutes.", "731904"),
    ("zero width", "Sign in", "Your code is 73\u200b19\u200b04.", "731904"),
    ("non-breaking", "Sign in", "Your code is 731\u00a0904.", "731904"),
    ("year like but named", "Sign in", "Your PIN: 2024", "2024"),
    ("leading zero", "Sign in", "Your code is 004217.", "004217"),
    ("ip and time", "New sign-in code", "Your code is 731904.\nTime: 2026-11-15 10:32:07 UTC\nIP: 203.0.113.77\nBrowser: Chrome 131.0.6778", "731904"),
    ("address with digits", "Code for user482913@acme.example", "Hello user482913@acme.example,\nyour code is 731904.", "731904"),
    ("url with digits", "Sign in", "Your code: 731904\nhttps://acme.example/img/482913/99887766.png", "731904"),
    ("code for order", "Pickup", "Your pickup code for order 4471982 is 731904.", "731904"),
    ("amount and code", "Payment approval", "Approve the payment of $1,250.00 to Shop 24. Your one-time password is 731904.", "731904"),
    ("card and code", "Payment approval", "Card ending in 4821. Your verification code is 731904.", "731904"),
    ("repeated", "731904 is your code", "Hi!\n\nYour code is 731904\n\nThanks", "731904"),
    ("forwarded", "Fwd: code", "FYI\n\n---------- Forwarded message ---------\nFrom: Acme\nDate: today\n\nYour code is 731904", None),
    ("order number", "Order 4471982 confirmed", "Thank you for your order 4471982. Total: $48.29. Tracking number 940011189956.", None),
    ("invoice", "Invoice 2026-00482", "Invoice number: 482913\nAmount: 1200 EUR\nDue: 15.11.2026", None),
    ("phone", "Call us", "Please verify by calling +1 415 555 0132 or 4155550132.", None),
    ("year", "Confirm your 2026 plans", "Happy 2026! Please confirm your plans for 2027.", None),
    ("zip code", "Delivery", "We deliver to ZIP code 94043 now.", None),
    ("error code", "Build failed", "Build 48213 failed with error code 500123. Log in to see more.", None),
    ("coupon", "20% off", "Coupon code: SAVE2026\nDiscount code 482913", None),
    ("gift card", "A gift", "Gift card code: 4829 1377 0021 9933", None),
    ("backup codes", "Your backup codes", "Backup codes:\n\n48213377\n99124402\n77120043\n55120987", None),
    ("meeting", "Meeting", "Meeting ID: 884 2213 7712\nDial 4829# to join", None),
    ("source code", "Review", "The source code has 482913 lines in 1377 files.", None),
    ("http status", "Status", "Status code 404404 seen 5521 times.", None),
    ("flight", "Your trip", "Booking reference: KX4T9Q\nFlight 4821 Gate 2204", None),
    ("css colour", "Hello", "Use color #202123 for text and #333333 for the code blocks.", None),
    ("version", "Release", "Version 20261115 of VS Code is out. Build 482913.", None),
    ("statistics", "Weekly report", "Your site had 48213 visits, 1377 sign-ups and 5521 log-ins.", None),
    ("bank", "Statement", "Account number 48291377, sort code 20-48-13, balance 4821.", None),
    ("tax", "Tax", "Your tax code is 1257 and your reference number is 482913.", None),
    ("ticket", "[#482913] Support request", "Your ticket 482913 was received. Case 1377.", None),
    ("code of conduct", "Policy", "Our code of conduct 2026 applies to 4821 employees.", None),
    ("capitals", "HELLO", "YOUR CODE REVIEW IS READY. PLEASE LOOK.", None),
    ("two accounts", "Codes", "Code for alice: 731904\nCode for bob: 482913", None),
]
for trap, subject, text, code in EN:
    add("en", trap, subject, text, code=code)

for n in range(12):
    c = digits(6)
    sender = f"no-reply@service{n}.example"
    subject = dice.choice(["Your sign-in code", "Verify your identity", "Security code", "One-time password"])
    lead = dice.choice(["Enter this code to continue:", "Your security code:", "One-time passcode", "Here is your login code."])
    style = dice.choice(["font-size:32px;letter-spacing:8px", "font-family:monospace", "background:#f4f4f4;padding:12px"])
    add("en", "html template", subject, text="View this mail in a browser.", html=page(f"<table><tr><td><img alt='Acme' width=80 src='x'></td></tr><tr><td><p>{lead}</p></td></tr><tr><td style='{style}'>{c}</td></tr><tr><td style='font-size:12px'>If you did not request this, ignore it. Ticket {digits(7)}.<br>Acme, 500 Howard St, San Francisco CA 94105</td></tr></table>"), code=c, sender=sender)

LINKS = [
    ("magic link", "Sign in to Acme", "Click to sign in:\nhttps://acme.example/magic?token=%T\n\nThis link expires soon.", "https://acme.example/magic?token=%T"),
    ("text confirm", "Confirm", "Please confirm your address by opening this link:\n\n<https://acme.example/confirm/%T>\n\nhttps://acme.example/privacy", "https://acme.example/confirm/%T"),
    ("blocked link", "Confirm", "Confirm your address: https://127.0.0.1/confirm?token=%T", None),
    ("userinfo", "Confirm", "Confirm your address: https://acme.example@evil.example/confirm?token=%T", None),
    ("two confirm links", "Confirm", "Confirm as Alice: https://acme.example/confirm?token=%T\n\nConfirm as Bob: https://acme.example/confirm?token=%U", None),
    ("no secret", "Log in", "Log in at https://acme.example/login to see your bill.", None),
    ("newsletter", "News", "Read more: https://acme.example/blog/how-to-verify\nUnsubscribe: https://acme.example/unsubscribe?token=%T", None),
    ("not me", "New sign-in", "If this wasn't you, report it: https://acme.example/report?token=%T", None),
]
for trap, subject, text, link in LINKS:
    t, u = token(), token()
    put = lambda s: s.replace("%T", t).replace("%U", u)
    add("en", trap, subject, put(text), link=link and put(link))

out = pathlib.Path(__file__).with_name("corpus.json")
out.write_text("[\n" + ",\n".join(json.dumps(mail, ensure_ascii=False) for mail in mails) + "\n]\n", encoding="utf-8")
print(len(mails), "mails")
