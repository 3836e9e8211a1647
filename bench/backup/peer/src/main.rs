//! Takes a backup, or restores one, as a YAML file says: `peer backup|restore FILE`.

use kafka_backup_core::{backup::BackupEngine, Config, RestoreEngine};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (config, warnings) = Config::from_yaml_with_warnings(&std::fs::read_to_string(&arguments[2])?)?;
    for one in warnings {
        eprintln!("{one}");
    }
    if arguments[1] == "backup" {
        BackupEngine::new(config).await?.run().await?;
    } else {
        RestoreEngine::new(config)?.run().await?;
    }
    Ok(())
}
