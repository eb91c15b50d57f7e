//! What is sent: 60 bytes of JSON that say in which place they were sent, and when, if that is asked. Made and read with as little work as
//! possible, since that is not what is measured.

const BLANK: &[u8; 60] = br#"{"at":"0000000000000000","n":"0000000000000000","typing":[]}"#;
const AT: std::ops::Range<usize> = 7..23;
const PLACE: std::ops::Range<usize> = 30..46;

/// `at` is in nanoseconds since an epoch; 0 if nobody wants to know.
pub(crate) fn write(at: u64, place: u64) -> String {
    let mut payload = BLANK.to_vec();
    write_hex(&mut payload[AT], at);
    write_hex(&mut payload[PLACE], place);
    String::from_utf8(payload).expect("digits are text")
}

/// When it was sent, and in which place.
pub(crate) fn read(payload: &str) -> (u64, u64) {
    let number = |place| u64::from_str_radix(&payload[place], 16).expect("it is one of ours");
    (number(AT), number(PLACE))
}

fn write_hex(into: &mut [u8], mut number: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number % 16) as usize];
        number /= 16;
    }
}
