//! What is asked of a server, whatever product it is and wherever its programs are from.

use crate::Result;

/// A server of ours, running or not.
pub(crate) trait Server {
    /// The URL, if the server runs and answers.
    fn url(&self) -> Option<String>;

    /// Starts the server unless it runs, makes sure of its database, and returns its URL.
    fn start(&self) -> Result<String>;

    /// Stops the server and waits for its end.
    fn stop(&self) -> Result;

    /// The version, as the running server tells it.
    fn version(&self) -> Result<String>;
}
