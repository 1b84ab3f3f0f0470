//! A policy as most are written on the SDK: it parses its request, and accepts it, or with `mutate: true` hands the
//! object back.

use kubewarden_policy_sdk::request::ValidationRequest;
use kubewarden_policy_sdk::settings::Validatable;
use kubewarden_policy_sdk::wapc_guest::{CallResult, register_function};
use kubewarden_policy_sdk::{accept_request, mutate_request};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Settings {
    #[serde(default)]
    mutate: bool,
}

impl Validatable for Settings {
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Called by the host once the module is instantiated.
#[expect(unsafe_code, reason = "the engine finds the function by its unmangled name")]
#[unsafe(no_mangle)]
pub extern "C" fn wapc_init() {
    register_function("validate", validate);
}

fn validate(payload: &[u8]) -> CallResult {
    let request: ValidationRequest<Settings> = ValidationRequest::new(payload)?;
    if request.settings.mutate { mutate_request(request.request.object) } else { accept_request() }
}
