//! `host.crypto`, from inside an isolate: C rows, P4, P21, and samples of Wycheproof's vectors.

use aws_lc_rs::{
    encoding::AsDer as _,
    rand::SystemRandom,
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_SHA256},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

use crate::support::{Seen, body, echo, invoke_with};

/// Runs a body once for each row of the input `rows`, and gives what it returned or the message of what it threw.
fn each(row: &str, rows: &Value) -> Vec<Value> {
    let source = format!(
        "const {{ crypto }} = host, {{ hex, base64 }} = crypto;
        export const handler = ({{ rows }}) => rows.map((row) => {{ try {{ {row} }} catch (e) {{ return [e.name, e.code, e.message] }} }})"
    );
    // So many in one invocation that its 200 operations suffice.
    let chunks = rows.as_array().unwrap().chunks(15);
    chunks
        .flat_map(|rows| {
            let input = json!({ "rows": rows }).to_string();
            let seen = invoke_with(&source, "handler", &input, echo);
            serde_json::from_str::<Vec<Value>>(seen.result()).unwrap()
        })
        .collect()
}

fn vectors(file: &str) -> Value {
    serde_json::from_str(file).unwrap()
}

/// The name and code of what a call throws, and its message.
fn thrown(call: &str) -> (String, String, String) {
    let seen = body(&format!(
        "const {{ crypto }} = host, bytes = (n) => new Uint8Array(n);
         try {{ return [{call}] }} catch (e) {{ return {{ n: e.name, c: e.code, m: e.message }} }}"
    ));
    let error: Value = serde_json::from_str(seen.result()).unwrap();
    let part = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (part("n"), part("c"), part("m"))
}

/// C1: Wycheproof, AES-CBC with PKCS #5 padding. All failures are one error.
#[test]
fn c1_wycheproof_aes_cbc() {
    let vectors = vectors(include_str!("vectors/aes_cbc_pkcs5.json"));
    let got = each(
        "const [, key, iv, text] = row;
         return crypto.aesCbcDecrypt(hex.decode(key), hex.decode(iv), hex.decode(text), 'hex')",
        &vectors["rows"],
    );
    let one = json!([
        "Error",
        "failed",
        "host.crypto.aesCbcDecrypt: the data cannot be decrypted"
    ]);
    for (row, got) in vectors["rows"].as_array().unwrap().iter().zip(got) {
        match &row[4] {
            Value::Null => assert_eq!(got, one, "{row}"),
            plain => assert_eq!(got, *plain, "{row}"),
        }
    }
}

/// Wycheproof, HMAC with SHA-1, SHA-256, SHA-384 and SHA-512; tags may be cut.
#[test]
fn c12_wycheproof_hmac() {
    let vectors = vectors(include_str!("vectors/hmac.json"));
    let got = each(
        "const [algorithm, , key, message, tag] = row;
         const made = crypto.hmac(algorithm, hex.decode(key), hex.decode(message)).slice(0, tag.length);
         return crypto.timingSafeEqual(made, tag)",
        &vectors["rows"],
    );
    for (row, got) in vectors["rows"].as_array().unwrap().iter().zip(got) {
        // An empty key is refused here: C12.
        if row[2] == "" {
            assert_eq!(got[1], "bad_request", "{row}");
        } else {
            assert_eq!(got, row[5], "{row}");
        }
    }
}

/// C4: Wycheproof, Ed25519, with the key as bytes, DER and PEM.
#[test]
fn c4_wycheproof_ed25519() {
    let vectors = vectors(include_str!("vectors/ed25519.json"));
    let got = each(
        "const [, raw, der, message, signature] = row;
         const pem = `-----BEGIN PUBLIC KEY-----\\n${base64.encode(hex.decode(der))}\\n-----END PUBLIC KEY-----\\n`;
         const keys = row[0] % 2 ? [hex.decode(raw), pem] : [hex.decode(der)];
         const all = keys.map((key) => crypto.ed25519Verify(key, hex.decode(signature), hex.decode(message)));
         return all.every((one) => one === all[0]) ? all[0] : 'unlike'",
        &vectors["rows"],
    );
    for (row, got) in vectors["rows"].as_array().unwrap().iter().zip(got) {
        assert_eq!(got, row[5], "{row}");
    }
}

/// C8: Wycheproof, JSON Web Signature. Their payloads are no claims, so that the right tokens with RS256 come just so
/// far as to be told that; all others are stopped before.
#[test]
fn c8_wycheproof_json_web_signature() {
    let vectors = vectors(include_str!("vectors/jws.json"));
    let rows: Vec<Value> = vectors["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            json!([
                row[3],
                vectors["keys"][usize::try_from(row[2].as_u64().unwrap()).unwrap()]
            ])
        })
        .collect();
    let got = each("return crypto.jwtVerify(row[0], row[1])", &json!(rows));
    let mut right = 0;
    for ((row, given), got) in vectors["rows"]
        .as_array()
        .unwrap()
        .iter()
        .zip(&rows)
        .zip(got)
    {
        let header = given[0].as_str().unwrap().split('.').next().unwrap();
        let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
        let is_ours = header.windows(5).any(|window| window == b"RS256");
        let is_right = row[4] == true && is_ours;
        let message = got[2].as_str().unwrap();
        assert_eq!(
            message.contains("its payload is no"),
            is_right,
            "{row}: {got}"
        );
        right += usize::from(is_right);
    }
    assert!(right >= 5, "{right}");
}

struct Signer {
    pair: KeyPair,
}

impl Signer {
    fn new() -> Self {
        Self {
            pair: KeyPair::generate(KeySize::Rsa2048).unwrap(),
        }
    }

    fn pem(&self) -> String {
        let der = self.pair.public_key().as_der().unwrap();
        let base64 = STANDARD.encode(der.as_ref());
        format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----")
    }

    fn token(&self, header: &str, payload: &str) -> String {
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(payload)
        );
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// What verifying each token comes to: the payload, or the end of the message.
    fn verify(&self, tokens: &[String], options: &Value) -> Vec<String> {
        let rows: Vec<Value> = tokens
            .iter()
            .map(|token| json!([token, self.pem(), options]))
            .collect();
        let got = each(
            "return crypto.jwtVerify(row[0], row[1], row[2] ?? undefined).payload",
            &json!(rows),
        );
        got.into_iter()
            .map(|got| match &got {
                Value::Array(error) => error[2]
                    .as_str()
                    .unwrap()
                    .trim_start_matches("host.crypto.jwtVerify: ")
                    .to_owned(),
                payload => payload.to_string(),
            })
            .collect()
    }
}

const RS256: &str = r#"{"alg":"RS256","typ":"JWT"}"#;

/// C8, C11: the algorithm is RS256 and nothing else, headers that would change the meaning are refused, and what a
/// token brings along is not looked at.
#[test]
fn c8_c11_headers() {
    let signer = Signer::new();
    let payload = r#"{"a":1}"#;
    let cases = [
        (RS256, "{\"a\":1}"),
        (r#"{"alg":"none"}"#, "its alg is not RS256"),
        (r#"{"alg":"None"}"#, "its alg is not RS256"),
        (r#"{"alg":"nONE"}"#, "its alg is not RS256"),
        (r#"{"alg":"HS256"}"#, "its alg is not RS256"),
        (r#"{"alg":["RS256"]}"#, "its alg is not RS256"),
        (r#"{"typ":"JWT"}"#, "its alg is not RS256"),
        ("RS256", "its header is no JSON object"),
        ("[]", "its header is no JSON object"),
        (
            r#"{"alg":"RS256","crit":["x"],"x":1}"#,
            "its header has crit, which is not known here",
        ),
        (
            r#"{"alg":"RS256","crit":[]}"#,
            "its header has crit, which is not known here",
        ),
        (
            r#"{"alg":"RS256","b64":false}"#,
            "its header has b64, which is not known here",
        ),
        (
            r#"{"alg":"RS256","jku":"http://evil.example/k","x5u":"http://evil.example","jwk":{"kty":"oct"},"kid":"../../etc/passwd' OR 1"}"#,
            "{\"a\":1}",
        ),
    ];
    let tokens: Vec<String> = cases
        .iter()
        .map(|(header, _)| signer.token(header, payload))
        .collect();
    let got = signer.verify(&tokens, &Value::Null);
    for ((header, expected), got) in cases.iter().zip(got) {
        assert_eq!(got, *expected, "{header}");
    }
    let right = signer.token(RS256, payload);
    let (signed, signature) = right.rsplit_once('.').unwrap();
    let forms = [
        signed.to_owned(),
        format!("{signed}."),
        format!("{right}.x"),
        format!("{right}="),
        format!("{signed}.{}", signature.replace(['-', '_'], "+")),
        format!(" {right}"),
        String::new(),
        "..".to_owned(),
    ];
    for (form, got) in forms.iter().zip(signer.verify(&forms, &Value::Null)) {
        assert!(!got.starts_with('{'), "{form}: {got}");
    }
    let other = Signer::new();
    let got = other.verify(&[right], &Value::Null);
    assert_eq!(got, ["its signature is not right for this key"]);
}

/// C10: claims of a wrong type are refused also where nobody asks for them; times are those of the clock.
#[test]
fn c10_claims() {
    let signer = Signer::new();
    let options = json!({ "issuer": "me", "audience": "you", "clockToleranceSeconds": 60 });
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = |more: &str| format!(r#"{{"iss":"me","aud":["x","you"]{more}}}"#);
    let whole = |name: &str| format!("its {name} is no whole number of seconds");
    let mut cases = vec![
        (claims(""), None),
        (claims(&format!(r#","exp":{}"#, now - 30)), None),
        (
            claims(&format!(r#","exp":{}"#, now - 90)),
            Some("it has expired (exp)".into()),
        ),
        (claims(&format!(r#","nbf":{}"#, now + 30)), None),
        (
            claims(&format!(r#","nbf":{}"#, now + 90)),
            Some("it is not valid yet (nbf)".into()),
        ),
        (
            claims(&format!(r#","iat":{}"#, now + 90)),
            Some("it is not valid yet (iat)".into()),
        ),
        (
            claims(r#","exp":1e999"#),
            Some("its payload has a number that no Number can hold".into()),
        ),
        (claims(r#","sub":1"#), Some("its sub is no string".into())),
        (
            r#"{"iss":"you","aud":"you"}"#.into(),
            Some("it is from another issuer (iss)".into()),
        ),
        (
            r#"{"aud":"you"}"#.into(),
            Some("it is from another issuer (iss)".into()),
        ),
        (
            r#"{"iss":["me"],"aud":"you"}"#.into(),
            Some("its iss is no string".into()),
        ),
        (
            r#"{"iss":"me"}"#.into(),
            Some("it is for another audience (aud)".into()),
        ),
        (
            r#"{"iss":"me","aud":[1,"you"]}"#.into(),
            Some("its aud is neither a string nor a list of strings".into()),
        ),
        ("[]".into(), Some("its payload is no JSON object".into())),
    ];
    for wrong in [
        "\"never\"",
        "\"99999999999\"",
        "-1",
        "1.5",
        "9223372036854775808",
        "1e10",
        "null",
        "[1]",
    ] {
        for name in ["exp", "nbf", "iat"] {
            cases.push((claims(&format!(r#","{name}":{wrong}"#)), Some(whole(name))));
        }
    }
    let tokens: Vec<String> = cases
        .iter()
        .map(|(payload, _)| signer.token(RS256, payload))
        .collect();
    for ((payload, expected), got) in cases.iter().zip(signer.verify(&tokens, &options)) {
        match expected {
            Some(expected) => assert_eq!(got, *expected, "{payload}"),
            None => assert!(got.starts_with('{'), "{payload}: {got}"),
        }
    }
}

/// P4: each function gives what it should, in each form.
#[test]
fn p4_functions_give_what_they_should() {
    let cases = [
        (
            "crypto.hash('sha1', 'abc')",
            r#""a9993e364706816aba3e25717850c26c9cd0d89d""#,
        ),
        (
            "crypto.hash('sha256', new Uint8Array([97, 98, 99]), 'base64')",
            r#""ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=""#,
        ),
        (
            "crypto.hash('sha256', 'abc', 'base64url')",
            r#""ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0""#,
        ),
        (
            "crypto.hash('sha384', '').length + crypto.hash('sha512', '').length",
            "224",
        ),
        (
            "crypto.hash('sha256', '', 'bytes') instanceof Uint8Array",
            "true",
        ),
        (
            "crypto.hmac('sha256', 'key', 'The quick brown fox jumps over the lazy dog')",
            r#""f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8""#,
        ),
        ("crypto.base64.encode('ä?>')", r#""w6Q/Pg==""#),
        ("crypto.base64.encode('ä?>', 'url')", r#""w6Q_Pg""#),
        (
            "crypto.base64.decode('w6Q/Pg==', 'standard', 'utf8')",
            r#""ä?>""#,
        ),
        (
            "crypto.base64.decode('w6Q_Pg', 'url', 'hex')",
            r#""c3a43f3e""#,
        ),
        ("[...crypto.hex.decode('00fFa0')]", "[0,255,160]"),
        ("crypto.hex.encode('\\ud800')", r#""efbfbd""#),
        ("crypto.hex.decode('c3a4', 'utf8')", r#""ä""#),
        (
            "crypto.timingSafeEqual('abc', new Uint8Array([97, 98, 99]))",
            "true",
        ),
        ("crypto.timingSafeEqual('abc', 'abd')", "false"),
        // C15
        ("crypto.timingSafeEqual('abc', 'abcd')", "false"),
        ("crypto.timingSafeEqual('', '')", "true"),
        ("crypto.randomBytes(0).length", "0"),
        ("crypto.randomBytes(65536).length", "65536"),
        ("crypto.randomBytes(16, 'hex').length", "32"),
        (
            "/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())",
            "true",
        ),
        // RFC 8032, section 7.1, the first two.
        (
            "crypto.ed25519Sign(crypto.hex.decode('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60'), '', 'hex').slice(0, 16)",
            r#""e5564300c360ac72""#,
        ),
        (
            "crypto.hex.encode(crypto.ed25519Sign(crypto.hex.decode('4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb'), crypto.hex.decode('72'))).slice(0, 16)",
            r#""92a009a9f0d4cab8""#,
        ),
    ];
    for (call, expected) in cases {
        let seen = body(&format!("const {{ crypto }} = host; return {call}"));
        assert_eq!(seen.result(), expected, "{call}");
    }
}

/// C4: a private key in PKCS #8, as PEM, signs; there is no place for a public key.
#[test]
fn c4_a_private_key_in_a_file_signs() {
    let pair = aws_lc_rs::signature::Ed25519KeyPair::generate().unwrap();
    let pkcs8 = pair.to_pkcs8().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(pkcs8.as_ref())
    );
    let public = STANDARD.encode(pair.public_key().as_ref());
    let got = each(
        "const signature = crypto.ed25519Sign(row[0], 'message');
         return [signature.length, crypto.ed25519Verify(base64.decode(row[1]), signature, 'message'),
            crypto.ed25519Verify(base64.decode(row[1]), signature, 'other'), crypto.ed25519Sign.length]",
        &json!([[pem, public]]),
    );
    assert_eq!(got, [json!([64, true, false, 0])]);
}

/// C5, C7, C17, C18, T22, P4: what is not offered is not there.
#[test]
fn c7_t22_what_is_not_offered_is_absent() {
    let seen = body(
        "return ['pbkdf2', 'scrypt', 'aesGcmDecrypt', 'ecdsaVerify', 'rsaDecrypt', 'x25519', 'subtle', 'createHash', 'md5']
            .filter((name) => name in host.crypto)",
    );
    assert_eq!(seen.result(), "[]");
    assert_eq!(thrown("crypto.pbkdf2('p', 's', 4294967295)").0, "TypeError");
    for name in ["md5", "SHA256", "sha224", "constructor", ""] {
        assert_eq!(
            thrown(&format!("crypto.hash('{name}', '')")).1,
            "bad_request"
        );
    }
}

/// C12, C14, P4: arguments are taken strictly, and the message says what is wanted.
#[test]
fn c12_c14_arguments_are_taken_strictly() {
    let limits = ["crypto.randomBytes(65537)", "crypto.randomBytes(1e9)"];
    for call in limits {
        let (name, code, message) = thrown(call);
        assert_eq!(
            (name.as_str(), code.as_str()),
            ("RangeError", "limit"),
            "{call}"
        );
        assert!(message.contains("65536"), "{message}");
    }
    let bad = [
        "crypto.randomBytes(-1)",
        "crypto.randomBytes(NaN)",
        "crypto.randomBytes(1.5)",
        "crypto.randomBytes('8')",
        "crypto.randomBytes()",
        "crypto.hmac('sha256', '', 'x')",
        "crypto.hmac('sha256', bytes(0), 'x')",
        "crypto.hmac('sha256', undefined, 'x')",
        "crypto.hash('sha256')",
        "crypto.hash('sha256', 1)",
        "crypto.hash('sha256', { a: 1 })",
        "crypto.hash('sha256', 'a', 'HEX')",
        "crypto.base64.decode('YQ')",
        "crypto.base64.decode('YR==')",
        "crypto.base64.decode('YQ==\\n')",
        "crypto.base64.decode('Y Q=')",
        "crypto.base64.decode('-_==')",
        "crypto.base64.decode('YQ==', 'url')",
        "crypto.base64.decode('YR', 'url')",
        "crypto.hex.decode('0')",
        "crypto.hex.decode('0g')",
        "crypto.hex.decode('0x00')",
        "crypto.hex.decode('+1')",
        "crypto.aesCbcDecrypt(bytes(15), bytes(16), bytes(16))",
        "crypto.aesCbcDecrypt(bytes(16), bytes(12), bytes(16))",
        "crypto.aesCbcDecrypt('0123456789abcdef', bytes(16), bytes(16))",
        "crypto.ed25519Sign(bytes(31), 'x')",
        "crypto.ed25519Sign('-----BEGIN PRIVATE KEY-----x', 'x')",
        "crypto.ed25519Verify(bytes(33), bytes(64), 'x')",
        "crypto.jwtVerify('a.b.c', 'key')",
        "crypto.jwtVerify('a.b.c', { kty: 'oct', k: 'AA' })",
        "crypto.jwtVerify('a.b.c', { kty: 'RSA', n: 'AQAB', e: 'AQAB', alg: 'PS256' })",
        "crypto.jwtVerify('a.b.c', bytes(2), { issuers: 'x' })",
        "crypto.jwtVerify('a.b.c', bytes(2), { clockToleranceSeconds: 601 })",
        "crypto.jwtVerify(1, bytes(2))",
    ];
    for call in bad {
        let (name, code, message) = thrown(call);
        assert_eq!(
            (name.as_str(), code.as_str()),
            ("TypeError", "bad_request"),
            "{call}: {message}"
        );
        assert!(message.starts_with("host.crypto."), "{message}");
    }
    let (_, code, _) = thrown("crypto.hex.decode('ff', 'utf8')");
    assert_eq!(code, "failed");
}

/// P21, C18: 200 operations, 1 MiB a call, 8 MiB in all; what is refused has cost nothing.
#[test]
fn p21_operations_and_bytes_are_bounded() {
    let count = |source: &str| -> (Seen, String) {
        let seen = body(&format!(
            "let n = 0; try {{ for (;;) {{ {source}; n++ }} }} catch (e) {{ return [n, e.name, e.code] }}"
        ));
        let result = seen.result().to_owned();
        (seen, result)
    };
    let (seen, result) = count("host.crypto.hash('sha256', 'a')");
    assert_eq!(result, r#"[200,"RangeError","limit"]"#);
    assert_eq!(seen.done.usage.unwrap().crypto_operations, 200);
    let (seen, result) = count("host.crypto.hash('sha256', 'x'.repeat((1 << 20) - 6))");
    assert_eq!(result, r#"[8,"RangeError","limit"]"#);
    assert_eq!(seen.done.usage.unwrap().crypto_bytes, 8 << 20);
    for data in [
        "'x'.repeat((1 << 20) + 1)",
        "new Uint8Array(2 << 20)",
        "'x'.repeat(2e8)",
        "'ä'.repeat(1 << 20)",
    ] {
        let (_, result) = count(&format!("host.crypto.hash('sha256', {data})"));
        assert_eq!(result, r#"[0,"RangeError","limit"]"#, "{data}");
    }
    let (_, result) = count("host.crypto.randomBytes(1)");
    assert_eq!(result, r#"[200,"RangeError","limit"]"#);
}
